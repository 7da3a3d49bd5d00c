-- Failed attempts: due again, or dead. `mark_failed.sql` and `note_attempts.sql` follow. $1 attempts
-- kept, $2 token, $3 seqs, $4 delays in seconds, $5 errors, $6 dead or not, $7 the attempts'
-- outcomes, null where nothing was tried, $8 milliseconds they took. Runs under JOIN_BY_HASH of
-- `transaction.rs`; the arrays beside the joins bound what is read.
WITH verdict AS (
    SELECT * FROM unnest($3::bigint[], $4::float8[], $5::text[], $6::boolean[], $7::text[],
                         $8::bigint[])
        AS v (seq, delay, error, dead, outcome, took_ms)
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = 0, failed = NOT v.dead, dead = v.dead,
        due_at = CASE WHEN v.dead THEN d.due_at ELSE now() + make_interval(secs => v.delay) END
    FROM verdict v
    WHERE d.seq = v.seq AND d.seq = ANY ($3) AND d.claim = $2
    RETURNING d.seq, d.message_id, d.due_at, v.error, v.dead, v.outcome, v.took_ms,
              NULL::int AS failed_before
),
