-- The function that enqueues says what is wrong before anything is written, in the words of the
-- library and with its limits, and knows the fence of a table that was adopted.

CREATE OR REPLACE FUNCTION core_outbox.enqueue(
    integration    text,
    event_type     text,
    payload        jsonb,
    stream         text        DEFAULT NULL,
    event_id       text        DEFAULT NULL,
    headers        jsonb       DEFAULT NULL,
    tenant         text        DEFAULT NULL,
    user_id        text        DEFAULT NULL,
    correlation    text        DEFAULT NULL,
    due_at         timestamptz DEFAULT NULL,
    max_attempts   int         DEFAULT 10,
    ordering_key   text        DEFAULT NULL,
    causation      text        DEFAULT NULL,
    source         text        DEFAULT NULL,
    schema_version int         DEFAULT 1,
    occurred_at    timestamptz DEFAULT NULL,
    copy           int         DEFAULT 0
) RETURNS TABLE (id uuid, is_new boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    event   text := coalesce(enqueue.event_id, core_outbox.uuid_v7()::text);
    is_same boolean;
    fault   text;
BEGIN
    -- Of a text only its length is said, and of a payload its size: errors end up in logs.
    SELECT CASE
               WHEN f.value = '' OR f.value IS NULL THEN f.field || ' is empty: give it a value'
               ELSE f.field || ' has ' || length(f.value) || ' characters, at most ' || f.most
                    || ' are allowed'
           END
    INTO fault
    FROM (VALUES ('source_event_id', event, 100, true),
                 ('source_stream_id', coalesce(stream, event), 200, true),
                 ('integration_type', integration, 120, true),
                 ('event_type', event_type, 120, true),
                 ('tenant_id', tenant, 60, false),
                 ('user_id', user_id, 60, false),
                 ('correlation_id', correlation, 120, false),
                 ('causation_id', causation, 120, false),
                 ('source', source, 120, false),
                 ('ordering_key', ordering_key, 200, false)
         ) AS f (field, value, most, required)
    WHERE f.value = '' OR length(f.value) > f.most OR f.required AND f.value IS NULL
    LIMIT 1;
    fault := CASE
        WHEN fault IS NOT NULL THEN fault
        WHEN coalesce(max_attempts, 0) < 1
            THEN 'max_attempts is ' || coalesce(max_attempts, 0) || ', the least allowed is 1'
        WHEN coalesce(schema_version, -1) < 0
            THEN 'schema_version is ' || coalesce(schema_version, -1) || ', the least allowed is 0'
        WHEN coalesce(copy, -1) < 0
            THEN 'copy is ' || coalesce(copy, -1) || ', the least allowed is 0'
        WHEN payload IS NULL THEN 'payload is empty: give it a value'
        WHEN octet_length(payload::text) > 262144
            THEN 'payload has ' || octet_length(payload::text)
                 || ' bytes, at most 262144 are allowed: send a reference instead'
        WHEN octet_length(headers::text) > 65536
            THEN 'headers has ' || octet_length(headers::text)
                 || ' bytes, at most 65536 are allowed: send a reference instead'
        WHEN jsonb_typeof(headers) <> 'object' THEN 'headers must be a JSON object'
    END;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION 'message refused: %', fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    id := core_outbox.uuid_v7();
    INSERT INTO core_outbox.integration_outbox (
        id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
        tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
        schema_version, copy, occurred_at, due_at, max_attempts
    ) VALUES (
        id, coalesce(stream, event), event, integration, event_type, payload, headers,
        tenant, user_id, correlation, causation, source, ordering_key,
        schema_version, copy, occurred_at, coalesce(due_at, now()), max_attempts
    )
    ON CONFLICT DO NOTHING;
    is_new := FOUND;
    IF NOT is_new THEN
        SELECT m.id, m.integration_type = enqueue.integration AND m.copy = enqueue.copy
        INTO id, is_same
        FROM core_outbox.integration_outbox m
        WHERE m.source_event_id = event
          AND m.source_stream_id = coalesce(enqueue.stream, event)
          AND (m.integration_type = enqueue.integration AND m.copy = enqueue.copy
               -- The old fence, of whatever name.
               OR EXISTS (
                   SELECT FROM pg_index i
                   WHERE i.indrelid = 'core_outbox.integration_outbox'::regclass
                     AND i.indisunique AND i.indpred IS NULL
                     AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
                          FROM pg_attribute a
                          WHERE a.attrelid = i.indrelid
                            AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
                         = ARRAY['source_event_id', 'source_stream_id']))
        ORDER BY 2 DESC
        LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'refused as a duplicate, but the first message cannot be found: '
                'enqueue again, and look for unique indexes added to the outbox by hand'
                USING ERRCODE = 'unique_violation';
        ELSIF NOT is_same THEN
            RAISE EXCEPTION 'this event is already enqueued for another integration, and the old '
                'fence, a unique index on stream and event alone, lets one event reach one '
                'integration only: run `postroom migrate --replace-fence`'
                USING ERRCODE = 'unique_violation';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;
