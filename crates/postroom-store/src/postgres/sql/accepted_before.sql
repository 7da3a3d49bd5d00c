-- The messages that the fence takes for the same as these, by the place of these.
SELECT wanted.place, m.id
FROM unnest($1::varchar[], $2::varchar[], $3::varchar[], $4::int[]) WITH ORDINALITY
    AS wanted (event, stream, integration, copy, place)
JOIN core_outbox.integration_outbox m
    ON m.source_event_id = wanted.event AND m.source_stream_id = wanted.stream
   AND m.integration_type = wanted.integration AND m.copy = wanted.copy
