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
    -- What a row says is worked out once, and kept while both are fed.
    WITH f AS MATERIALIZED ({fresh}),
    parcels AS (
        INSERT INTO {schema}.parcel AS p (lane, number, due_at, lowest, bytes, integration, refs)
        SELECT {schema}.lane_of(g.integration_type),
               CASE WHEN pg_catalog.row_number() OVER () OPERATOR(pg_catalog.=) 1 THEN drawn
                    ELSE pg_catalog.nextval('{schema}.parcel_number') END,
               g.due_at, g.lowest, g.bytes, g.integration_type, g.refs
        FROM (
            SELECT m.integration_type, pg_catalog.min(m.due_at) AS due_at, pg_catalog.min(m.seq) AS lowest,
                   pg_catalog.sum(m.bytes) AS bytes, pg_catalog.array_agg(m.id) AS refs
            FROM (
                SELECT f.*, (pg_catalog.row_number() OVER () OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog./) 64 AS chunk
                FROM f
                WHERE {schema}.is_fresh(f.status, f.due_at, NULL, soon)
            ) AS m
            GROUP BY m.integration_type, m.chunk
            -- Numbered in the order of insertion.
            ORDER BY m.chunk
        ) AS g
        ON CONFLICT (lane, number) DO UPDATE SET number = p.number
        WHERE {schema}.insert_under_another_number(excluded)
    )
    INSERT INTO {schema}.delivery AS d (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT f.id, f.seq, f.due_at, f.due_at, {schema}.lane_of(f.integration_type), f.bytes,
           {schema}.state_of(f.status), f.integration_type
    FROM f
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
