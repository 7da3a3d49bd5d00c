-- $1 worker, $2 message id.
SELECT d.claim, d.seq
FROM core_outbox.integration_outbox m
JOIN core_outbox.delivery d ON d.seq = m.seq AND d.message_id = m.id
JOIN core_outbox.claim c ON c.token = d.claim
WHERE m.id = $2 AND c.worker = $1
