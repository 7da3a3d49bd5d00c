-- Takes due deliveries of several lanes under one token and reads their messages.
-- $1 token, $2 worker, $3 claim time in seconds, $4 integrations, $5 rows per integration,
-- $6 low-water marks, $7 rows over all, $8 bytes over all, $9 payload limit.
--
-- The ctid array keeps its LIMIT under every plan; a CTE joined back, or `id IN (SELECT …)`,
-- does not. The planner settings that go with it are in `transaction.rs`.
WITH taken AS (
    UPDATE core_outbox.delivery
    SET claim = $1
    WHERE ctid = ANY (ARRAY(
        SELECT picked.ctid
        FROM (
            SELECT lane_due.ctid,
                   sum(lane_due.bytes) OVER (ROWS UNBOUNDED PRECEDING) - lane_due.bytes
                       AS bytes_before
            FROM (
                SELECT due.ctid, due.bytes
                FROM unnest($4::text[], $5::int[], $6::timestamptz[])
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
                LIMIT $7
            ) AS lane_due
        ) AS picked
        WHERE picked.bytes_before < $8
    ))
    RETURNING seq, message_id, rescues, due_at, bytes
),
held AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone)
    SELECT $1, $2, now(), now() + make_interval(secs => $3), false
    WHERE EXISTS (SELECT FROM taken)
)
SELECT t.seq, t.rescues, t.due_at AS delivery_due_at,
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       CASE WHEN t.bytes <= $9 / 8 OR octet_length(m.payload::text) <= $9
            THEN m.payload::text END AS payload,
       m.headers::text AS headers,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at
FROM taken t
-- Lateral and not flattened: one look-up by key per message. As a plain join, statistics of an
-- emptied table made it a full scan per message.
LEFT JOIN LATERAL (
    SELECT * FROM core_outbox.integration_outbox o
    WHERE o.id = t.message_id
      -- A message that was closed by hand while it was claimed counts as gone.
      AND o.status IN ('PENDING', 'FAILED')
    OFFSET 0
) AS m ON true
