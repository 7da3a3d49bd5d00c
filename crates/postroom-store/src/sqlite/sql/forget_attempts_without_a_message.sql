-- ?1 ids of messages.
DELETE FROM outbox_attempt
WHERE message_id IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM integration_outbox AS m WHERE m.id = outbox_attempt.message_id)
