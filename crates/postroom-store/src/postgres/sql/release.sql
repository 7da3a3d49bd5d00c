-- Takes claimed messages from their relay. Of a claim on deliveries only the delivery's own is cleared, of
-- one on parcels the message gets a delivery, which outranks the parcel: the rest of the batch stays
-- held. The claims on parcels are locked, by a statement before this one. What was changed by hand
-- meanwhile is followed. Lock order: claim, delivery, message. $1 ids, $2 a fresh token, $3 action (for
-- `record_action.sql`, which follows). Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the
-- joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($1) AND claim IS NOT NULL
    FOR UPDATE
),
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.status, m.due_at, m.integration_type,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM held))
       OR m.id = ANY (ARRAY(
              SELECT f.message_id FROM core_outbox.in_flight f
              WHERE f.message_id = ANY ($1)
                AND NOT EXISTS (SELECT FROM core_outbox.delivery d
                                WHERE d.message_id = f.message_id)
          )) AND core_outbox.is_waiting(m.status)
    FOR UPDATE
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, due_at = date_trunc('milliseconds', now()), integration = said.integration_type,
        lane = core_outbox.lane_of(said.integration_type),
        state = CASE WHEN core_outbox.is_waiting(said.status)
                     THEN core_outbox.state_of(said.status) ELSE d.state END
    FROM said
    WHERE d.message_id = said.id AND d.message_id = ANY ($1)
    RETURNING d.message_id
),
made AS (
    INSERT INTO core_outbox.delivery
        (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT id, seq, date_trunc('milliseconds', now()), due_at, core_outbox.lane_of(integration_type),
           bytes, core_outbox.state_of(status), integration_type
    FROM said
    WHERE id <> ALL (ARRAY(SELECT message_id FROM held))
    -- A relay that has just read the parcel may have set it aside meanwhile.
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
),
changed AS (
    SELECT message_id FROM freed UNION ALL SELECT message_id FROM made
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET due_at = date_trunc('milliseconds', now()), updated_at = now(), settled = $2
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM changed))
      AND m.status IN ('PENDING', 'FAILED')
)
