-- What is not dead any more. ?1 ids, ?2 due.
UPDATE outbox_delivery SET state = 'w', rescues = 0, due_at = ?2, since = ?2
WHERE message_id IN (SELECT value FROM json_each(?1)) AND state = 'd' AND claim IS NULL
  AND EXISTS (SELECT 1 FROM integration_outbox AS m
              WHERE m.id = outbox_delivery.message_id AND m.status = 'DEAD')
RETURNING message_id
