-- Takes due deliveries of several lanes under one token and reads their messages.
-- $1 payload limit (for `content.rs`, which reads them), $2 token, $3 worker, $4 claim time in
-- seconds, $5 integrations, $6 rows per integration, $7 and $8 low-water marks (due time and seq),
-- $9 rows over all, $10 bytes over all, $11 the lease of what is taken for a queue, or null.
--
-- The ctid array keeps its LIMIT under every plan; a CTE joined back, or `id IN (SELECT …)`,
-- does not. The planner settings that go with it are in `transaction.rs`. The number of a lane's
-- name leads the index `delivery_lane`.
WITH taken AS (
    UPDATE core_outbox.delivery
    SET claim = $2
    WHERE ctid = ANY (ARRAY(
        SELECT picked.ctid
        FROM (
            SELECT lane_due.ctid,
                   sum(lane_due.bytes) OVER (ROWS UNBOUNDED PRECEDING) - lane_due.bytes
                       AS bytes_before
            FROM (
                SELECT due.ctid, due.bytes
                FROM unnest($5::text[], $6::int[], $7::timestamptz[], $8::bigint[])
                         AS lane (integration, quota, mark_due, mark_seq)
                CROSS JOIN LATERAL (
                    SELECT d.ctid, d.bytes
                    FROM core_outbox.delivery d
                    WHERE hashtextextended(d.integration, 0) = hashtextextended(lane.integration, 0)
                      AND d.integration = lane.integration
                      AND d.claim IS NULL AND NOT d.dead AND d.rescues = 0
                      AND (d.due_at, d.seq) > (lane.mark_due, lane.mark_seq) AND d.due_at <= now()
                    ORDER BY d.due_at, d.seq
                    LIMIT lane.quota
                    FOR UPDATE SKIP LOCKED
                ) AS due
                LIMIT $9
            ) AS lane_due
        ) AS picked
        WHERE picked.bytes_before < $10
    ))
    -- Caution, see `content.rs`: of 16 kB PostgreSQL makes 130 MB of text at most, and quickly.
    RETURNING seq, message_id, rescues, due_at, claim, dispatch, (bytes > 16384)::int AS caution
),
held AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone, seqs, dispatched, lease)
    SELECT $2, $3, now(), now() + make_interval(secs => $4), false, array_agg(seq),
           $11::uuid IS NOT NULL, $11::uuid
    FROM taken
    HAVING count(*) > 0
)
