-- Remembers the events of messages that were delivered and are deleted: those of `changed`. $3 for how many
-- seconds after their delivery.
remembered AS (
    INSERT INTO core_outbox.remembered AS r (key, until)
    SELECT core_outbox.dedupe_key(source_event_id, source_stream_id, integration_type, copy),
           max(sent_at) + make_interval(secs => $3)
    FROM changed
    WHERE sent_at + make_interval(secs => $3) > now() AND NOT core_outbox.is_replay(headers)
    GROUP BY 1
    ON CONFLICT (key) DO UPDATE SET until = greatest(r.until, excluded.until)
)
