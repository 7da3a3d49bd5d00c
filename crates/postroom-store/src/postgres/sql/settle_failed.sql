-- Failed attempts: due again, or dead. $1 token, $2 seqs, $3 delays in seconds, $4 errors,
-- $5 dead or not, $6 attempts to add. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays
-- beside the joins bound what is read.
WITH verdict AS (
    SELECT * FROM unnest($2::bigint[], $3::float8[], $4::text[], $5::boolean[], $6::int[])
        AS v (seq, delay, error, dead, attempt)
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = 0, failed = NOT v.dead, dead = v.dead,
        due_at = CASE WHEN v.dead THEN d.due_at ELSE now() + make_interval(secs => v.delay) END
    FROM verdict v
    WHERE d.seq = v.seq AND d.seq = ANY ($2) AND d.claim = $1
    RETURNING d.seq, d.message_id, d.due_at, v.error, v.dead, v.attempt
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = CASE WHEN freed.dead THEN 'DEAD' ELSE 'FAILED' END,
        -- A count set by hand to the end of its type must not stop everyone else's outcome.
        attempts = least(m.attempts::bigint + freed.attempt, 2147483647)::int,
        due_at = freed.due_at,
        last_error = freed.error,
        updated_at = now(),
        settled = $1
    FROM freed
    WHERE m.id = freed.message_id AND m.id = ANY (ARRAY(SELECT message_id FROM freed))
)
SELECT seq FROM freed
