-- Takes at most one rescued delivery per lane, each under a token of its own: a message that
-- kills its relay takes no neighbour along.
-- $1 integrations, $2 worker, $3 claim time in seconds, $4 payload limit.
WITH taken AS (
    UPDATE core_outbox.delivery
    SET claim = gen_random_uuid()
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM unnest($1::text[]) AS lane (integration)
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
    RETURNING seq, message_id, rescues, due_at, bytes, claim
),
held AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone)
    SELECT claim, $2, now(), now() + make_interval(secs => $3), true FROM taken
)
SELECT t.seq, t.rescues, t.due_at AS delivery_due_at,
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       CASE WHEN t.bytes <= $4 / 8 OR octet_length(m.payload::text) <= $4
            THEN m.payload::text END AS payload,
       m.headers::text AS headers,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       t.claim AS token
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
