-- Makes deliveries say what these messages say. What is claimed is left alone: the attempt under way
-- decides for itself, and looks at the message when it ends. A delivery that does not come with its
-- message may have had any number of dispatches, and a job of one of them may still be kept: none of
-- their numbers comes again, so it counts on from the seconds since 2020. $1 ids, $2 whether they may be
-- in parcels that somebody holds, $3 and $4 the lanes and numbers of their pending edits. Those of what
-- somebody holds stay (`undecided.sql`), and those of what somebody is changing at this moment, whose
-- message may say something else before this ends. Waits for nobody. Lock order: lane, delivery, message.
WITH concerns AS MATERIALIZED (
    SELECT named.id FROM unnest($1::/*id*/uuid[]) AS named (id)
    WHERE NOT core_outbox.is_noted_sent(named.id) AND NOT ($2::boolean AND named.id IN (
        SELECT f.message_id
        FROM core_outbox.in_flight f
        -- OFFSET 0 as in `undecided.sql`.
        CROSS JOIN LATERAL (
            SELECT m.settled FROM core_outbox.integration_outbox m
            WHERE m.id = f.message_id
            OFFSET 0
        ) AS m
        WHERE f.message_id = ANY ($1) AND m.settled IS NULL
          AND NOT EXISTS (
              SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id OFFSET 0
          )
    ))
),
shown AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT id FROM concerns))
),
-- What has no delivery gets one. Whoever changes such a message meanwhile finds none, and leaves an edit.
made AS (
    INSERT INTO core_outbox.delivery
        (message_id, seq, due_at, since, lane, bytes, state, integration, dispatch)
    SELECT id, seq, due_at, due_at, core_outbox.lane_of(integration_type), bytes,
           core_outbox.state_of(status), integration_type,
           (extract(epoch FROM clock_timestamp()) - 1577836800)::int
    FROM shown
    WHERE core_outbox.is_waiting(status)
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = shown.id)
    -- In order, so that nobody waits in a circle with whoever reconciles.
    ORDER BY id
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
),
-- What has one is locked before it is looked at: whoever changed its message has changed it too.
held AS MATERIALIZED (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY (ARRAY(SELECT id FROM concerns)) AND claim IS NULL
    FOR UPDATE SKIP LOCKED
),
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM held))
    FOR SHARE SKIP LOCKED
),
followed AS (
    UPDATE core_outbox.delivery d
    SET seq = said.seq, due_at = said.due_at, since = said.due_at,
        lane = core_outbox.lane_of(said.integration_type), state = core_outbox.state_of(said.status),
        integration = said.integration_type, rescues = 0
    FROM said
    WHERE d.message_id = said.id AND d.message_id = ANY (ARRAY(SELECT message_id FROM held))
      AND core_outbox.is_waiting(said.status)
    RETURNING d.message_id
),
closed AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY (ARRAY(
        SELECT id FROM said WHERE NOT core_outbox.is_waiting(status)
        UNION ALL
        SELECT message_id FROM held WHERE message_id <> ALL (ARRAY(SELECT id FROM shown))
    ))
    RETURNING message_id
),
over AS (
    DELETE FROM core_outbox.pending_edit
    WHERE lane = ANY ($3) AND id = ANY ($4)
      AND message_id = ANY (ARRAY(
          SELECT message_id FROM made
          UNION ALL SELECT message_id FROM followed
          UNION ALL SELECT message_id FROM closed
          UNION ALL SELECT d.message_id FROM core_outbox.delivery d
                    WHERE d.message_id = ANY ($1) AND d.claim IS NOT NULL
          UNION ALL SELECT c.id FROM concerns c
                    WHERE NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = c.id)
                      AND NOT EXISTS (SELECT FROM shown
                                      WHERE shown.id = c.id AND core_outbox.is_waiting(status))
      ))
    RETURNING id
)
SELECT count(*) FROM over
