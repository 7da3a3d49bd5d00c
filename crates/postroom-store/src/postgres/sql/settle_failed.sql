-- Failed attempts: due again, or dead. `mark_failed.sql` and `note_attempts.sql` follow. $1 attempts
-- kept, $2 token, $3 ids, $4 delays in seconds, $5 errors, $6 dead or not, $7 the attempts'
-- outcomes, null where nothing was tried, $8 milliseconds they took. One that was sent elsewhere by hand
-- during the attempt goes on there; the message is locked, so that a change that is being made is waited
-- for. Runs under JOIN_BY_HASH of
-- `transaction.rs`; the arrays beside the joins bound what is read.
WITH verdict AS (
    SELECT * FROM unnest($3::/*id*/uuid[], $4::float8[], $5::text[], $6::boolean[], $7::text[],
                         $8::bigint[])
        AS v (id, delay, error, dead, outcome, took_ms)
),
held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($3) AND claim = $2
    FOR UPDATE
),
said AS (
    SELECT id, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR NO KEY UPDATE
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = 0,
        /*ledger: attempts = d.attempts + (v.outcome IS NOT NULL)::int, last_error = v.error, */
        state = CASE WHEN v.dead THEN 'd'::"char" ELSE 'f'::"char" END,
        due_at = CASE WHEN v.dead THEN d.due_at ELSE now() + make_interval(secs => v.delay) END,
        integration = coalesce(said.integration_type, d.integration),
        lane = core_outbox.lane_of(coalesce(said.integration_type, d.integration))
    FROM verdict v
    LEFT JOIN said ON said.id = v.id
    WHERE d.message_id = v.id AND d.message_id = ANY ($3) AND d.claim = $2
    RETURNING d.message_id, d.due_at, v.error, v.dead, v.outcome, v.took_ms,
              NULL::int AS failed_before
),
