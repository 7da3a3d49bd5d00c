-- Keeps a failed attempt as history. ?1 id of the message, ?2 now, ?3 milliseconds, ?4 outcome, ?5 error.
INSERT INTO outbox_attempt (message_id, number, at, took_ms, outcome, error)
SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5
FROM outbox_attempt WHERE message_id = ?1
