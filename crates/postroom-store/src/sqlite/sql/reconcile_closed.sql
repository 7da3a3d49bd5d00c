-- Deliveries that nobody holds and whose message is not open. ?1 after which message, ?2 rows.
SELECT d.message_id FROM outbox_delivery AS d
WHERE d.message_id > ?1 AND d.claim IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM integration_outbox AS m
      WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  )
ORDER BY d.message_id LIMIT ?2
