SELECT id FROM core_outbox.integration_outbox
WHERE source_event_id = $1 AND source_stream_id = $2 AND integration_type = $3 AND copy = $4
