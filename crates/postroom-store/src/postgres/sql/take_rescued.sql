-- Takes at most one rescued delivery per lane, each under a token of its own: a message that
-- kills its relay takes no neighbour along. For a queue it is no suspect.
-- $1 payload limit (for `content.rs`, which reads them), $2 integrations, $3 worker, $4 claim time
-- in seconds, $5 the lease of what is taken for a queue, or null.
WITH taken AS (
    UPDATE core_outbox.delivery
    SET claim = gen_random_uuid()
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM unnest($2::text[]) AS lane (integration)
        CROSS JOIN LATERAL (
            SELECT d.ctid
            FROM core_outbox.delivery d
            WHERE d.integration = lane.integration
              AND d.claim IS NULL AND NOT d.dead AND d.rescues > 0
              AND d.due_at <= now()
            ORDER BY d.due_at, d.seq
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS due
    ))
    -- Caution, see `content.rs`: of 16 kB PostgreSQL makes 130 MB of text at most, and quickly.
    RETURNING seq, message_id, rescues, due_at, claim, dispatch, (bytes > 16384)::int AS caution
),
held AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone, seqs, dispatched, lease)
    SELECT claim, $3, now(), now() + make_interval(secs => $4), $5::uuid IS NULL, ARRAY[seq],
           $5::uuid IS NOT NULL, $5::uuid
    FROM taken
)
