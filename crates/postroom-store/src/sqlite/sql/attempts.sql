-- ?1 id of the message.
SELECT at, took_ms, outcome, error, response FROM outbox_attempt WHERE message_id = ?1 ORDER BY number
