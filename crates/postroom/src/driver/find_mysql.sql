SELECT id FROM integration_outbox
WHERE source_event_id = ? AND source_stream_id = ? AND integration_type = ? AND copy = ?
