-- Open messages without a delivery get one. $1 the window's first id, $2 where it ends, if it does.
-- The messages are locked, so that a change made by hand is either seen here or followed. How many
-- dispatches there were went with the delivery: it counts on as in `0008_reopened.sql`.
INSERT INTO core_outbox.delivery
    (seq, message_id, due_at, bytes, failed, dead, integration, dispatch)
SELECT m.seq, m.id, m.due_at,
       pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0),
       m.status = 'FAILED', m.status = 'DEAD', m.integration_type,
       (extract(epoch FROM clock_timestamp()) - 1577836800)::int
FROM core_outbox.integration_outbox m
WHERE m.id >= $1 AND ($2::uuid IS NULL OR m.id < $2)
  AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.seq = m.seq)
FOR NO KEY UPDATE OF m
ON CONFLICT DO NOTHING
RETURNING seq
