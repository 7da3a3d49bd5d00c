-- ?1 ids.
DELETE FROM outbox_delivery WHERE message_id IN (SELECT value FROM json_each(?1))
