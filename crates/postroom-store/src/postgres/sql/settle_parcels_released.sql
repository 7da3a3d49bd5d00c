-- Messages of parcels go back to their lane, as they say by now, each with a delivery. What was closed by
-- hand has none. Follows `held_parcels.sql`. $1 token, $2 ids.
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY ($2) AND m.id IN (SELECT unnest(refs) FROM held)
),
made AS (
    INSERT INTO core_outbox.delivery (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT id, seq, due_at, due_at, core_outbox.lane_of(integration_type), bytes,
           core_outbox.state_of(status), integration_type
    FROM said
    WHERE core_outbox.is_waiting(status)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
)
SELECT message_id FROM made
UNION ALL
SELECT id FROM said WHERE NOT core_outbox.is_waiting(status)
