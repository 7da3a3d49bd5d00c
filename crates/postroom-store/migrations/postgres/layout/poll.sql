-- Feeds the ledger by looking, where the table's owner allows no trigger. A row is looked at when its `xmin` is not
-- before the horizon: the oldest transaction that was open when the last complete look began. So what commits late is
-- not missed, whatever its number or time, and what was changed is looked at again.
CREATE TABLE IF NOT EXISTS {schema}.look (
    single  boolean     PRIMARY KEY DEFAULT true CHECK (single),
    horizon xid8        NOT NULL DEFAULT '0',
    at      timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE {schema}.look IS 'How far the table was looked through for new rows.';
COMMENT ON COLUMN {schema}.look.single IS 'There is one row.';
COMMENT ON COLUMN {schema}.look.horizon IS 'Every transaction before this one had ended when the last look began.';
COMMENT ON COLUMN {schema}.look.at IS 'When that was.';
INSERT INTO {schema}.look DEFAULT VALUES ON CONFLICT DO NOTHING;

-- How many rows were found. One process looks at a time, and the others go on.
CREATE OR REPLACE FUNCTION {schema}.poll() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    soon     timestamptz := {schema}.soon();
    since    xid8;
    next     xid8 := pg_snapshot_xmin(pg_current_snapshot());
    seen     bigint;
    followed bigint;
BEGIN
    SELECT horizon INTO since FROM {schema}.look FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- From another cluster, as after a restore.
    IF since > pg_snapshot_xmax(pg_current_snapshot()) THEN
        since := '0';
    END IF;
    -- One statement, and so one look at the table and at the ledger: what moves between them meanwhile is seen on
    -- one of them.
    WITH new AS MATERIALIZED (
        SELECT f.* FROM (
            SELECT {fields} FROM {table} m
            WHERE {open}
              -- The 32 bits of `xmin`, counted from the horizon. At first every row is looked at.
              AND (since = '0'::xid8
                   OR (m.xmin::text::bigint - (since::text::bigint & 4294967295)) & 4294967295 < 2147483648)
        ) AS f
        WHERE NOT EXISTS (SELECT FROM {schema}.delivery d WHERE d.message_id = f.id)
          AND NOT EXISTS (
              SELECT FROM (SELECT unnest(p.refs) AS id FROM {schema}.parcel p OFFSET 0) AS named
              WHERE named.id = f.id
          )
          AND NOT {schema}.is_noted_sent(f.id)
    ),
    fresh AS (
        INSERT INTO {schema}.parcel (lane, number, due_at, lowest, bytes, integration, refs)
        SELECT {schema}.lane_of(n.integration_type), nextval('{schema}.parcel_number'), min(n.due_at), min(n.seq),
               sum(n.bytes), n.integration_type, array_agg(n.id)
        FROM (
            SELECT *, (row_number() OVER (PARTITION BY integration_type ORDER BY seq) - 1) / 64 AS chunk
            FROM new
            WHERE {schema}.is_fresh(status, due_at, NULL, soon)
        ) AS n
        GROUP BY n.integration_type, n.chunk
        ORDER BY min(n.seq)
    ),
    deferred AS (
        INSERT INTO {schema}.delivery (message_id, seq, due_at, since, lane, bytes, state, integration)
        SELECT id, seq, due_at, due_at, {schema}.lane_of(integration_type), bytes, {schema}.state_of(status),
               integration_type
        FROM new
        WHERE {schema}.is_deferred(status, due_at, NULL, soon)
        ON CONFLICT (message_id) DO NOTHING
    )
    SELECT count(*) INTO seen FROM new;
    -- What was changed by hand, and nobody holds.
    UPDATE {schema}.delivery d
    SET due_at = f.due_at, since = f.due_at, integration = f.integration_type,
        lane = {schema}.lane_of(f.integration_type), state = {schema}.state_of(f.status), rescues = 0
    FROM (
        SELECT {fields} FROM {table} m
        WHERE since <> '0'::xid8
          AND (m.xmin::text::bigint - (since::text::bigint & 4294967295)) & 4294967295 < 2147483648
          AND {open}
    ) AS f
    WHERE d.message_id = f.id AND d.claim IS NULL AND {schema}.is_waiting(f.status) AND {keeps_failures}
      AND (d.due_at, d.integration, d.state)
          IS DISTINCT FROM (f.due_at, f.integration_type, {schema}.state_of(f.status));
    GET DIAGNOSTICS followed = ROW_COUNT;
    UPDATE {schema}.look SET horizon = next, at = clock_timestamp();
    RETURN seen + followed;
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.poll() FROM PUBLIC;
