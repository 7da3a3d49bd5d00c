-- $1 worker, $2 message id.
SELECT c.token, m.seq
FROM core_outbox.integration_outbox m
LEFT JOIN core_outbox.delivery d ON d.message_id = m.id
LEFT JOIN core_outbox.in_flight f ON f.message_id = m.id AND d.message_id IS NULL
JOIN core_outbox.claim c ON c.token = coalesce(d.claim, f.token)
WHERE m.id = $2 AND c.worker = $1
