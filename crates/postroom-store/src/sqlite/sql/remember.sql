-- Remembers the events of messages that are about to be deleted. Replays were delivered again on purpose.
-- ?1 ids, ?2 for how many milliseconds after their delivery, ?3 now, which is the delivery of what does not
-- say when it was.
INSERT INTO outbox_remembered (source_event_id, source_stream_id, integration_type, copy, until)
SELECT m.source_event_id, m.source_stream_id, m.integration_type, m.copy,
       coalesce(CAST(round((julianday(m.sent_at) - 2440587.5) * 86400000.0) AS INTEGER), ?3) + ?2
FROM integration_outbox AS m
WHERE m.id IN (SELECT value FROM json_each(?1))
  AND m.last_error IS NOT 'not delivered: the same event was delivered before'
  AND json_extract(m.headers, '$."postroom-replay-of"') IS NULL
ON CONFLICT DO UPDATE SET until = max(until, excluded.until)
