-- Frees such deliveries. `follow.sql` comes next. ?1 ids.
UPDATE outbox_delivery SET claim = NULL
WHERE message_id IN (SELECT value FROM json_each(?1)) AND claim IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = outbox_delivery.claim)
RETURNING message_id
