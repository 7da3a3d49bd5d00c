-- ?1 ids of messages.
DELETE FROM outbox_attempt WHERE message_id IN (SELECT value FROM json_each(?1))
