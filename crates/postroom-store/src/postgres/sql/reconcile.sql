-- What no trigger saw: open messages without a delivery get one, deliveries without an open
-- message go.
WITH made AS (
    INSERT INTO core_outbox.delivery (seq, message_id, due_at, bytes, failed, dead, integration)
    SELECT m.seq, m.id, m.due_at,
           pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0),
           m.status = 'FAILED', m.status = 'DEAD', m.integration_type
    FROM core_outbox.integration_outbox m
    WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.seq = m.seq)
    ON CONFLICT DO NOTHING
    RETURNING 1
),
gone AS (
    DELETE FROM core_outbox.delivery d
    WHERE d.claim IS NULL
      AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m
                      WHERE m.id = d.message_id AND m.status <> 'SENT')
    RETURNING 1
)
SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM gone)
