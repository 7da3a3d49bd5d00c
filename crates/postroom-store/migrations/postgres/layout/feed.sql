-- Feeds the ledger of {table}, as `feed_ledger` of 0001_outbox.sql does. What a row says comes from functions that
-- were bound to their operators when they were made: whoever inserts chooses what a name could mean here.
CREATE OR REPLACE FUNCTION {schema}.feed_ledger() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
AS $$
DECLARE
    soon timestamptz := {schema}.soon();
    drawn bigint := pg_catalog.nextval('{schema}.parcel_number');
BEGIN
    {besides}
    -- What nearly every INSERT needs: one fresh message.
    INSERT INTO {schema}.parcel (lane, number, due_at, lowest, bytes, integration, refs)
    SELECT {schema}.lane_of(f.integration_type), drawn, f.due_at, f.seq, f.bytes, f.integration_type, ARRAY[f.id]
    FROM ({fresh}) AS f
    WHERE {schema}.is_fresh(f.status, f.due_at, NULL, soon) AND NOT EXISTS (SELECT FROM fresh OFFSET 1)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.parcel AS p (lane, number, due_at, lowest, bytes, integration, refs)
    SELECT {schema}.lane_of(f.integration_type),
           CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN drawn
                ELSE pg_catalog.nextval('{schema}.parcel_number') END,
           f.due_at, f.lowest, f.bytes, f.integration_type, f.refs
    FROM (
        SELECT m.integration_type, pg_catalog.min(m.due_at) AS due_at, pg_catalog.min(m.seq) AS lowest,
               pg_catalog.sum(m.bytes) AS bytes, pg_catalog.array_agg(m.id) AS refs
        FROM (
            SELECT f.id, f.seq, f.due_at, f.integration_type, f.bytes,
                   (pg_catalog.row_number() OVER (PARTITION BY f.integration_type)
                    OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog./) 64 AS chunk
            FROM ({fresh}) AS f
            WHERE {schema}.is_fresh(f.status, f.due_at, NULL, soon)
        ) AS m
        GROUP BY m.integration_type, m.chunk
        ORDER BY m.chunk
    ) AS f
    ON CONFLICT (lane, number) DO UPDATE SET number = p.number
    WHERE {schema}.insert_under_another_number(excluded);
    IF NOT EXISTS (SELECT FROM ({fresh}) AS f WHERE {schema}.is_deferred(f.status, f.due_at, NULL, soon)) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.delivery AS d (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT f.id, f.seq, f.due_at, f.due_at, {schema}.lane_of(f.integration_type), f.bytes,
           {schema}.state_of(f.status), f.integration_type
    FROM ({fresh}) AS f
    WHERE {schema}.is_deferred(f.status, f.due_at, NULL, soon)
    ON CONFLICT (message_id) DO UPDATE
    SET seq = excluded.seq, due_at = excluded.due_at, since = excluded.since, lane = excluded.lane,
        bytes = excluded.bytes, state = excluded.state, integration = excluded.integration
    WHERE d.claim IS NULL;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.feed_ledger() FROM PUBLIC;
CREATE TRIGGER postroom_feed AFTER INSERT ON {table}
    REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.feed_ledger();
CREATE TRIGGER postroom_emptied AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.empty_ledger();
CREATE TRIGGER postroom_wake AFTER INSERT ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.wake_relay();
