-- Takes due deliveries of several lanes under one token and reads their messages.
-- $1 payload limit (for `content.sql`, which follows), $2 token, $3 worker, $4 claim time in
-- seconds, $5 integrations, $6 rows per integration, $7 low-water marks, $8 rows over all,
-- $9 bytes over all.
--
-- The ctid array keeps its LIMIT under every plan; a CTE joined back, or `id IN (SELECT …)`,
-- does not. The planner settings that go with it are in `transaction.rs`.
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
                FROM unnest($5::text[], $6::int[], $7::timestamptz[])
                         AS lane (integration, quota, mark)
                CROSS JOIN LATERAL (
                    SELECT d.ctid, d.bytes
                    FROM core_outbox.delivery d
                    WHERE d.integration = lane.integration
                      AND d.claim IS NULL AND NOT d.dead AND d.rescues = 0
                      AND d.due_at >= lane.mark AND d.due_at <= now()
                    ORDER BY d.due_at, d.seq
                    LIMIT lane.quota
                    FOR UPDATE SKIP LOCKED
                ) AS due
                LIMIT $8
            ) AS lane_due
        ) AS picked
        WHERE picked.bytes_before < $9
    ))
    RETURNING seq, message_id, rescues, due_at, bytes, claim
),
held AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone)
    SELECT $2, $3, now(), now() + make_interval(secs => $4), false
    WHERE EXISTS (SELECT FROM taken)
)
