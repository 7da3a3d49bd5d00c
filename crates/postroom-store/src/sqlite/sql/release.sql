-- What is held no longer. ?1 ids.
UPDATE outbox_delivery SET claim = NULL
WHERE message_id IN (SELECT value FROM json_each(?1)) AND claim IS NOT NULL
  AND EXISTS (SELECT 1 FROM integration_outbox AS m WHERE m.id = outbox_delivery.message_id)
RETURNING message_id
