-- The failed attempts of a message, in order. ?1 its id.
SELECT at, took_ms, outcome, error, response FROM outbox_attempt WHERE message_id = ?1 ORDER BY number
