-- Event, stream, integration.
SELECT MAX(copy) + 1 FROM integration_outbox
WHERE source_event_id = ? AND source_stream_id = ? AND integration_type = ?
