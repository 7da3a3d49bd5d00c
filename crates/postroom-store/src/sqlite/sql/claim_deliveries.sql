-- ?1 token, ?2 ids.
UPDATE outbox_delivery SET claim = ?1 WHERE message_id IN (SELECT value FROM json_each(?2))
