-- Takes due deliveries of several lanes under one token and reads their messages.
-- $1 payload limit (for `content.rs`, which reads them), $2 token, $3 worker, $4 relay,
-- $5 integrations, $6 rows per integration, $7 and $8 after which due time and seq in each,
-- $9 rows over all, $10 bytes over all, $11 whether what is taken goes to a queue.
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
                FROM unnest($5::text[], $6::int[], $7::timestamptz[], $8::bigint[])
                         AS wanted (integration, quota, mark_due, mark_seq)
                CROSS JOIN LATERAL (
                    SELECT d.ctid, d.bytes
                    FROM core_outbox.delivery d
                    WHERE d.lane = core_outbox.lane_of(wanted.integration)
                      AND d.integration = wanted.integration
                      AND d.claim IS NULL AND d.state IN ('w', 'f') AND d.rescues = 0
                      AND (d.due_at, d.seq) > (wanted.mark_due, wanted.mark_seq)
                      AND d.due_at <= now()
                    ORDER BY d.due_at, d.seq
                    LIMIT wanted.quota
                    FOR UPDATE SKIP LOCKED
                ) AS due
                LIMIT $9
            ) AS lane_due
        ) AS picked
        WHERE picked.bytes_before < $10
    ))
    -- Caution, see `content.rs`: of 16 kB PostgreSQL makes 130 MB of text at most, and quickly.
    RETURNING message_id, rescues, due_at, claim, dispatch, (bytes > 16384)::int AS caution,
              lane, false AS is_fresh
),
held AS (
    -- The relay's id is read from its living row. Without one it is null, which fails the statement:
    -- such a claim would be anybody's at once.
    INSERT INTO core_outbox.claim (token, worker, since, relay, ids, dispatched)
    SELECT $2, $3, now(), (SELECT id FROM core_outbox.relay WHERE id = $4 AND until >= now()),
           array_agg(message_id), $11::boolean
    FROM taken
    HAVING count(*) > 0
)
