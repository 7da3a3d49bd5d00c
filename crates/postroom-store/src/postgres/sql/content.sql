-- Reads the messages of what was taken. $1 payload limit. What is longer as text is not sent; the
-- text is made once, in `m`, which `content.rs` completes.
SELECT t.message_id, t.rescues, t.due_at AS delivery_due_at,
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       CASE WHEN octet_length(m.payload_text) <= $1 THEN m.payload_text END AS payload,
       CASE WHEN octet_length(m.headers_text) <= greatest($1, 65536)
            THEN m.headers_text END AS headers,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       t.claim AS token, t.dispatch, m.headers IS NOT NULL AS has_headers, m.seq,
       -- What a parcel may name by mistake: a message that has a delivery, is due later or goes
       -- elsewhere by now.
       t.is_fresh AND (
           m.due_at > now() OR core_outbox.lane_of(m.integration_type) <> t.lane
           OR EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = t.message_id)
       ) AS is_elsewhere
FROM taken t
-- Lateral and not flattened: one look-up by key per message. As a plain join, statistics of an
-- emptied table made it a full scan per message.
LEFT JOIN LATERAL (
    SELECT o.*,
