-- Removes deliveries whose message is gone, or is neither open nor dead. ?1 ids.
DELETE FROM outbox_delivery
WHERE message_id IN (SELECT value FROM json_each(?1)) AND claim IS NULL
  AND NOT EXISTS (
      SELECT 1 FROM integration_outbox AS m
      WHERE m.id = outbox_delivery.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  )
