-- The failed attempts of a message, in order. Id.
SELECT a.at, a.took_ms, a.outcome, a.error, a.response
FROM outbox_attempt AS a
JOIN integration_outbox AS m ON m.seq = a.seq AND m.id = a.message_id
WHERE m.id = ? ORDER BY a.number
