-- Everything is as it was, or has its default; the header says where it comes from. Id, event id, copy, the
-- path of the header, the number of the row to copy.
INSERT INTO integration_outbox (
    id, source_event_id, copy, source_stream_id, integration_type, event_type, payload,
    headers, tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, occurred_at, max_attempts
)
SELECT ?, ?, ?, source_stream_id, integration_type, event_type, payload,
       JSON_SET(COALESCE(headers, '{}'), ?, id),
       tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
       schema_version, occurred_at, max_attempts
FROM integration_outbox WHERE seq = ?
