-- What every list asks of a message. $2 integration, $3 tenant, $4 event type, $5 correlation,
-- $6 event id, $7 since, $8 until, $9 below this seq, $11 stream, $12 part of the last error; null
-- matches everything. $10 rows.
      AND ($2::text IS NULL OR m.integration_type = $2)
      AND ($3::text IS NULL OR m.tenant_id = $3)
      AND ($4::text IS NULL OR m.event_type = $4)
      AND ($5::text IS NULL OR m.correlation_id = $5)
      AND ($6::text IS NULL OR m.source_event_id = $6)
      AND ($7::timestamptz IS NULL OR m.created_at >= $7)
      AND ($8::timestamptz IS NULL OR m.created_at < $8)
      AND m.seq < $9
      AND ($11::text IS NULL OR m.source_stream_id = $11)
      AND ($12::text IS NULL OR strpos(lower(m.last_error), lower($12)) > 0)
