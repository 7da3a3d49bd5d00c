-- ?1 token.
DELETE FROM outbox_claim WHERE token = ?1
