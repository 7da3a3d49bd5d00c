-- Forgets events whose time is over. ?1 now, ?2 rows at most.
DELETE FROM outbox_remembered
WHERE (source_event_id, source_stream_id, integration_type, copy) IN (
    SELECT source_event_id, source_stream_id, integration_type, copy FROM outbox_remembered
    WHERE until < ?1 ORDER BY until LIMIT ?2
)
