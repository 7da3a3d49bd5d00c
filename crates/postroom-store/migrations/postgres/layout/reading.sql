-- What layouts say in their expressions. Nothing in a trigger may fail, so whatever people write into text or JSON
-- is read by functions that answer null.

-- RFC 3339, and what PostgreSQL prints. Days are added to the first of the month, so that no date is refused.
CREATE OR REPLACE FUNCTION {schema}.time_of(value text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value ~ '^[1-9][0-9]{3}-(0[1-9]|1[0-2])-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?$'
    THEN make_timestamptz(substr(value, 1, 4)::int, substr(value, 6, 2)::int, 1, 0, 0, 0, 'UTC')
         + make_interval(
               days => substr(value, 9, 2)::int - 1, hours => substr(value, 12, 2)::int,
               mins => substr(value, 15, 2)::int,
               secs => coalesce(substring(value FROM '^.{16}:([0-9.]+)'), '0')::float8)
         - coalesce(substring(value FROM '([+-])[0-9]{2}(?::?[0-9]{2})?$') || '1', '1')::int
           * make_interval(
               hours => coalesce(substring(value FROM '[+-]([0-9]{2})(?::?[0-9]{2})?$'), '0')::int,
               mins => coalesce(substring(value FROM '[+-][0-9]{2}:?([0-9]{2})$'), '0')::int)
END;

CREATE OR REPLACE FUNCTION {schema}.time_of_millis(value bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_timestamp(least(greatest(value, -62135596800000), 253402300799000) / 1000.0);

CREATE OR REPLACE FUNCTION {schema}.millis_of(value timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (extract(epoch FROM value) * 1000)::bigint;

CREATE OR REPLACE FUNCTION {schema}.text_of_time(value timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_char(value AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

CREATE OR REPLACE FUNCTION {schema}.count_of(value text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value ~ '^[0-9]{1,9}$' THEN value::int ELSE 0 END;

-- Delivery state inside a JSON document, at its top level or further down. What is missing on the way is made. As
-- text, since it calls itself.
CREATE OR REPLACE FUNCTION {schema}.with_state(document jsonb, path text[], state jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN cardinality(path) > 0 THEN
            CASE WHEN jsonb_typeof(document) = 'object' THEN document ELSE '{}' END
            || jsonb_build_object(path[1], {schema}.with_state(document -> path[1], path[2:], state))
        WHEN jsonb_typeof(document) = 'object' THEN document || state
        ELSE state
    END
$$;

CREATE OR REPLACE FUNCTION {schema}.without_state(document jsonb, path text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN jsonb_typeof(document) <> 'object' THEN document
    WHEN cardinality(path) = 0 THEN document - ARRAY(
        SELECT key FROM jsonb_object_keys(document) AS named (key) WHERE starts_with(key, 'outbox_'))
    WHEN jsonb_typeof(document #> path) = 'object' THEN jsonb_set(document, path, (document #> path) - ARRAY(
        SELECT key FROM jsonb_object_keys(document #> path) AS named (key) WHERE starts_with(key, 'outbox_')))
    ELSE document
END;

-- A text as JSON; one that is none as a JSON text, so that a list shows its row.
CREATE OR REPLACE FUNCTION {schema}.json_of(value text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN value::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN to_jsonb(value);
END
$$;

-- A uuid as the 26 characters of a ULID, which has as many bits and the same order; any other text as it is.
CREATE OR REPLACE FUNCTION {schema}.ulid_of(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN value ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN (
        SELECT string_agg(
            substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                   substring(B'00' || ('x' || replace(value, '-', ''))::bit(128) FROM 5 * place + 1 FOR 5)::int + 1,
                   1),
            '' ORDER BY place)
        FROM generate_series(0, 25) AS place)
    ELSE value
END;
