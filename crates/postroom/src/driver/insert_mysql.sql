INSERT INTO integration_outbox (
    id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
    tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
) VALUES (
    ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?,
    ?, ?, ?, COALESCE(?, UTC_TIMESTAMP(6)), ?
)
