-- Like `settle_failed.sql`, by the number of a dispatch: whoever holds the claim. The dispatch is
-- over with it. $1 to $8 as there, the token a fresh one, $9 how many dispatches were over when this
-- one began, $10 how many attempts had failed before it, or null. Runs under JOIN_BY_HASH of
-- `transaction.rs`; the arrays beside the joins bound what is read.
WITH verdict AS (
    SELECT * FROM unnest($3::/*id*/uuid[], $4::float8[], $5::text[], $6::boolean[], $7::text[],
                         $8::bigint[])
        AS v (id, delay, error, dead, outcome, took_ms)
),
held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($3) AND dispatch = $9 AND state <> 'd'
    FOR UPDATE
),
said AS (
    SELECT id, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR NO KEY UPDATE
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = 0, dispatch = d.dispatch + 1,
        /*ledger: attempts = greatest(d.attempts, coalesce($10, d.attempts) + (v.outcome IS NOT NULL)::int),
        last_error = v.error, */
        state = CASE WHEN v.dead THEN 'd'::"char" ELSE 'f'::"char" END,
        due_at = CASE WHEN v.dead THEN d.due_at ELSE now() + make_interval(secs => v.delay) END,
        integration = coalesce(said.integration_type, d.integration),
        lane = core_outbox.lane_of(coalesce(said.integration_type, d.integration))
    FROM verdict v
    LEFT JOIN said ON said.id = v.id
    WHERE d.message_id = v.id AND d.message_id = ANY ($3) AND d.dispatch = $9
      AND d.state <> 'd'
    RETURNING d.message_id, d.due_at, v.error, v.dead, v.outcome, v.took_ms,
              $10::int AS failed_before
),
