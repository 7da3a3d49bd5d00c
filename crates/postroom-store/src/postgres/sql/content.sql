-- Reads the messages of what was taken; ends both claims. $1 payload limit.
SELECT t.seq, t.rescues, t.due_at AS delivery_due_at,
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       CASE WHEN t.bytes <= $1 / 8 OR octet_length(m.payload::text) <= $1
            THEN m.payload::text END AS payload,
       m.headers::text AS headers,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       t.claim AS token, t.dispatch
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
