-- Makes deliveries of the messages that are `named`, whose parcels are gone. Ends the statements that
-- unpack. The messages are not locked: whoever is changing one by hand has left a pending edit, which is
-- followed after this. A delivery that is there outranks the parcel.
made AS (
    INSERT INTO core_outbox.delivery
        (message_id, seq, due_at, since, lane, rescues, bytes, state, integration)
    SELECT m.id, m.seq, m.due_at, m.due_at, core_outbox.lane_of(m.integration_type), named.rescues,
           core_outbox.content_bytes(m.payload, m.headers), core_outbox.state_of(m.status),
           m.integration_type
    FROM named
    -- Lateral and not flattened: one look-up by key per message under every plan.
    CROSS JOIN LATERAL (
        SELECT * FROM core_outbox.integration_outbox o WHERE o.id = named.id OFFSET 0
    ) AS m
    WHERE core_outbox.is_waiting(m.status)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
)
