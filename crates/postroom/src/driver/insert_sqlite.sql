INSERT INTO integration_outbox (
    id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
    tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
) VALUES (
    $1, $2, $3, $4, $5, $6, $7,
    $8, $9, $10, $11, $12, $13,
    $14, $15, $16, coalesce($17, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), $18
)
