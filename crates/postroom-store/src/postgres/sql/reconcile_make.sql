-- Open messages that neither a parcel nor a delivery names get a delivery. One statement, and so one
-- look at both sides: what moves between them meanwhile is seen on one of them. The messages are locked,
-- so that a change made by hand is either seen here or followed; those that somebody is changing at this
-- moment are left for the next time. How many dispatches there were went with the delivery: it counts on
-- as in `follow.sql`. What was delivered, and does not say so yet, is not open.
INSERT INTO core_outbox.delivery
    (message_id, seq, due_at, since, lane, bytes, state, integration, dispatch)
SELECT m.id, m.seq, m.due_at, m.due_at, core_outbox.lane_of(m.integration_type),
       core_outbox.content_bytes(m.payload, m.headers), core_outbox.state_of(m.status),
       m.integration_type, (extract(epoch FROM clock_timestamp()) - 1577836800)::int
FROM core_outbox.integration_outbox m
WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id)
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(refs) AS id FROM core_outbox.parcel OFFSET 0) AS named
      WHERE named.id = m.id
  )
  AND NOT EXISTS (
      SELECT FROM (SELECT unnest(ids) AS id FROM core_outbox.sent OFFSET 0) AS noted
      WHERE noted.id = m.id
  )
ORDER BY m.id
FOR NO KEY UPDATE OF m SKIP LOCKED
ON CONFLICT (message_id) DO NOTHING
RETURNING message_id
