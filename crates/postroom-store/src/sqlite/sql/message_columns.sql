-- What `row::message` reads first, in its order. Content follows: some statements leave it out.
m.seq, m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
m.schema_version, m.copy,
CAST(round((julianday(m.occurred_at) - 2440587.5) * 86400000.0) AS INTEGER),
CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
m.attempts, m.max_attempts,
CAST(round((julianday(m.created_at) - 2440587.5) * 86400000.0) AS INTEGER)
