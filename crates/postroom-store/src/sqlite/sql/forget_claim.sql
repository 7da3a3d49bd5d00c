-- A claim goes once no delivery carries it. ?1 token.
DELETE FROM outbox_claim
WHERE token = ?1 AND NOT EXISTS (
    SELECT 1 FROM outbox_delivery INDEXED BY outbox_delivery_claimed WHERE claim = ?1
)
