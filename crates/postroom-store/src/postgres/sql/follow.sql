-- Makes deliveries say what these messages say. What is claimed is left alone: the attempt under way
-- decides for itself, and looks at the message when it ends. A delivery that does not come with its
-- message may have had any number of dispatches, and a job of one of them may still be kept: none of
-- their numbers comes again, so it counts on from the seconds since 2020. $1 ids, $2 whether they may be
-- in parcels that somebody holds, $3 and $4 the lanes and numbers of their pending edits. Those of what
-- somebody holds stay (`undecided.sql`).
WITH concerns AS MATERIALIZED (
    SELECT named.id FROM unnest($1::uuid[]) AS named (id)
    WHERE NOT core_outbox.is_noted_sent(named.id) AND NOT ($2::boolean AND named.id IN (
        SELECT f.message_id
        FROM core_outbox.in_flight f
        JOIN core_outbox.integration_outbox m ON m.id = f.message_id
        WHERE f.message_id = ANY ($1) AND m.settled IS DISTINCT FROM f.token
          AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id)
    ))
),
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT id FROM concerns))
),
followed AS (
    INSERT INTO core_outbox.delivery AS d
        (message_id, seq, due_at, lane, bytes, state, integration, dispatch)
    SELECT id, seq, due_at, core_outbox.lane_of(integration_type), bytes,
           core_outbox.state_of(status), integration_type,
           (extract(epoch FROM clock_timestamp()) - 1577836800)::int
    FROM said
    WHERE core_outbox.is_waiting(status)
    -- In order, so that nobody waits in a circle with whoever reconciles.
    ORDER BY id
    ON CONFLICT (message_id) DO UPDATE
    SET seq = excluded.seq, due_at = excluded.due_at, lane = excluded.lane, state = excluded.state,
        integration = excluded.integration, rescues = 0
    WHERE d.claim IS NULL
    RETURNING message_id
),
-- Locked, as far as nobody is changing them: whoever opens one again comes for its delivery before this,
-- or finds none and leaves an edit.
shut AS MATERIALIZED (
    SELECT m.id FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT id FROM said WHERE NOT core_outbox.is_waiting(status)))
      AND NOT core_outbox.is_waiting(m.status)
    FOR SHARE SKIP LOCKED
),
closed AS (
    DELETE FROM core_outbox.delivery
    WHERE claim IS NULL
      AND message_id = ANY (ARRAY(
          SELECT id FROM shut
          UNION ALL
          SELECT id FROM concerns WHERE id <> ALL (ARRAY(SELECT id FROM said))
      ))
),
over AS (
    DELETE FROM core_outbox.pending_edit
    WHERE lane = ANY ($3) AND id = ANY ($4)
      AND message_id = ANY (ARRAY(SELECT id FROM concerns))
)
SELECT count(*) FROM followed
