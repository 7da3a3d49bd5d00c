-- Messages of parcels go back to their lane, as they say by now, each with a delivery. What was closed by
-- hand has none. $1 token, $2 ids.
WITH mine AS MATERIALIZED (
    SELECT lanes, numbers, messages FROM core_outbox.claim WHERE token = $1 FOR UPDATE
),
held AS MATERIALIZED (
    SELECT p.ctid AS place, p.refs
    FROM mine
    CROSS JOIN LATERAL unnest(mine.lanes, mine.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT ctid, refs FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
),
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY ($2) AND m.id IN (SELECT unnest(refs) FROM held)
),
made AS (
    INSERT INTO core_outbox.delivery (message_id, seq, due_at, lane, bytes, state, integration)
    SELECT id, seq, due_at, core_outbox.lane_of(integration_type), bytes,
           core_outbox.state_of(status), integration_type
    FROM said
    WHERE core_outbox.is_waiting(status)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
)
SELECT message_id FROM made
UNION ALL
SELECT id FROM said WHERE NOT core_outbox.is_waiting(status)
