-- Deliveries that nobody holds and that say something else than their open message. $1 after which
-- message, $2 rows.
SELECT d.message_id FROM core_outbox.delivery d
JOIN core_outbox.integration_outbox m ON m.id = d.message_id
WHERE d.message_id > $1 AND d.claim IS NULL
  AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND (d.due_at, d.integration, d.lane, d.state)
      IS DISTINCT FROM (m.due_at, m.integration_type, core_outbox.lane_of(m.integration_type),
                        core_outbox.state_of(m.status))
ORDER BY d.message_id LIMIT $2
