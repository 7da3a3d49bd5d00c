-- Deliveries under a claim that does not exist: no relay holds them, and none can take them. ?1 after which
-- message, ?2 rows.
SELECT d.message_id FROM outbox_delivery AS d
WHERE d.message_id > ?1 AND d.claim IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = d.claim)
ORDER BY d.message_id LIMIT ?2
