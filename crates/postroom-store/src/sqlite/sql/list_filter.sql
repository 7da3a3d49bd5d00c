-- What every list asks of a message. ?2 integration, ?3 tenant, ?4 event type, ?5 correlation, ?6 event id,
-- ?7 since, ?8 until, ?9 below this number, ?11 stream, ?12 part of the last error; null matches
-- everything. ?1 status, ?10 rows.
  AND (?2 IS NULL OR m.integration_type = ?2)
  AND (?3 IS NULL OR m.tenant_id = ?3)
  AND (?4 IS NULL OR m.event_type = ?4)
  AND (?5 IS NULL OR m.correlation_id = ?5)
  AND (?6 IS NULL OR m.source_event_id = ?6)
  AND (?7 IS NULL OR CAST(round((julianday(m.created_at) - 2440587.5) * 86400000.0) AS INTEGER) >= ?7)
  AND (?8 IS NULL OR CAST(round((julianday(m.created_at) - 2440587.5) * 86400000.0) AS INTEGER) < ?8)
  AND m.seq < ?9
  AND (?11 IS NULL OR m.source_stream_id = ?11)
  AND (?12 IS NULL OR instr(lower(m.last_error), lower(?12)) > 0)
