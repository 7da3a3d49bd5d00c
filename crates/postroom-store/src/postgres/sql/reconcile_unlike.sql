-- Deliveries that nobody holds and that say something else than their open message. $1 after which
-- seq, $2 rows.
SELECT d.seq FROM core_outbox.delivery d
JOIN core_outbox.integration_outbox m ON m.id = d.message_id
WHERE d.seq > $1 AND d.claim IS NULL
  AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND (d.due_at, d.integration, d.failed, d.dead)
      IS DISTINCT FROM (m.due_at, m.integration_type, m.status = 'FAILED', m.status = 'DEAD')
ORDER BY d.seq LIMIT $2
