-- Messages in the order given, as unnest keeps it: the sequence counts on from row to row. No conflict
-- target: what is not written is looked for by the fence afterwards, so that a table which still has
-- the narrower fence of an older schema works too.
INSERT INTO core_outbox.integration_outbox (
    id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
    tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
)
SELECT id, stream, event, integration, event_type, payload::jsonb, headers::jsonb,
       tenant, "user", correlation, causation, source, ordering_key,
       schema_version, copy, occurred_at, coalesce(due_at, now()), max_attempts
FROM unnest(
    $1::/*id*/uuid[], $2::varchar[], $3::varchar[], $4::varchar[], $5::varchar[], $6::text[], $7::text[],
    $8::varchar[], $9::varchar[], $10::varchar[], $11::varchar[], $12::varchar[], $13::varchar[],
    $14::int[], $15::int[], $16::timestamptz[], $17::timestamptz[], $18::int[]
) AS message (
    id, stream, event, integration, event_type, payload, headers,
    tenant, "user", correlation, causation, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
)
ON CONFLICT DO NOTHING
RETURNING id
