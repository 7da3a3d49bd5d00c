-- Open messages without a delivery get one. $1 the window's first id, $2 where it ends, if it does.
-- The messages are locked, so that a change made by hand is either seen here or followed; those that
-- somebody is changing at this moment are left for the next time. How many
-- dispatches there were went with the delivery: it counts on as in `0008_reopened.sql`. A delivery
-- that has the number and belongs to a message that is gone is replaced.
INSERT INTO core_outbox.delivery AS d
    (seq, message_id, due_at, bytes, failed, dead, integration, dispatch)
SELECT m.seq, m.id, m.due_at,
       pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0),
       m.status = 'FAILED', m.status = 'DEAD', m.integration_type,
       (extract(epoch FROM clock_timestamp()) - 1577836800)::int
FROM core_outbox.integration_outbox m
WHERE m.id >= $1 AND ($2::uuid IS NULL OR m.id < $2)
  AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND NOT EXISTS (SELECT FROM core_outbox.delivery o WHERE o.seq = m.seq AND o.message_id = m.id)
FOR NO KEY UPDATE OF m SKIP LOCKED
ON CONFLICT (seq) DO UPDATE
SET message_id = excluded.message_id, due_at = excluded.due_at, bytes = excluded.bytes,
    failed = excluded.failed, dead = excluded.dead, integration = excluded.integration,
    claim = NULL, rescues = 0, dispatch = excluded.dispatch
WHERE d.message_id <> excluded.message_id
  AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox o WHERE o.id = d.message_id)
RETURNING seq
