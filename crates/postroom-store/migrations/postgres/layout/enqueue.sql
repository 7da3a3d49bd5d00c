-- Enqueues from any language, inside the caller's transaction, as the layout writes a row. With the parameters of
-- `core_outbox.enqueue`. A second call for the same row returns the first one's key and changes nothing.
CREATE OR REPLACE FUNCTION {schema}.enqueue(
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
) RETURNS TABLE (id {id}, is_new boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    event text := coalesce(enqueue.event_id, gen_random_uuid()::text);
    goes  text;
    -- What is given and would be lost.
    lost  text := CASE {lost} END;
BEGIN
    IF coalesce(enqueue.copy, 0) <> 0 THEN
        RAISE EXCEPTION 'message refused: a row of {table} has no place for `copy`'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF lost IS NOT NULL THEN
        RAISE EXCEPTION 'message refused: a row of {table} has no place for `%`: leave it out, or name a column for `$%` in `insert` of the layout',
            lost, lost USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO {table} AS m ({columns})
    VALUES ({values})
    ON CONFLICT DO NOTHING
    RETURNING {key}, {integration} INTO id, goes;
    is_new := FOUND;
    IF is_new AND goes IS DISTINCT FROM enqueue.integration THEN
        RAISE EXCEPTION 'message refused: the layout of {table} sends this row to %, not to %', goes, integration
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'name that integration, or add a route to the layout';
    END IF;
    IF NOT is_new THEN
        SELECT {key}, {integration} INTO id, goes FROM {table} m WHERE {same} LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'refused as a duplicate by a unique index of {table}, and no row has this event id'
                USING ERRCODE = 'unique_violation';
        ELSIF goes IS DISTINCT FROM enqueue.integration THEN
            RAISE EXCEPTION 'this event is already enqueued for %, and {table} holds each event once', goes
                USING ERRCODE = 'unique_violation';
        END IF;
    END IF;
    RETURN NEXT;
END
$$;
