-- Makes deliveries of what is open in parcels that nobody holds: of each lane as many as were asked for,
-- and the whole parcel that the last of them is in. The lanes are locked, by a statement before this one.
-- $1 integrations, $2 rows per integration. A delivery that is there outranks its parcel.
WITH claimed AS MATERIALIZED (
    SELECT held.lane, held.number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.lanes IS NOT NULL
),
gone AS (
    DELETE FROM core_outbox.parcel
    WHERE ctid = ANY (ARRAY(
        SELECT p.ctid
        FROM unnest($1::text[], $2::int[]) AS wanted (integration, quota)
        JOIN core_outbox.lane_cursor c ON c.lane = core_outbox.lane_of(wanted.integration)
        CROSS JOIN LATERAL (
            SELECT counted.ctid
            FROM (
                SELECT one.ctid, cardinality(one.refs) AS messages,
                       sum(cardinality(one.refs)) OVER (ORDER BY one.number ROWS UNBOUNDED PRECEDING)
                           AS rows_until
                FROM (
                    SELECT ctid, number, refs FROM core_outbox.parcel
                    WHERE lane = c.lane AND number > c.low_water
                      AND integration = wanted.integration
                      AND NOT (lane, number) IN (SELECT lane, number FROM claimed)
                    ORDER BY lane, number
                    LIMIT wanted.quota
                ) AS one
            ) AS counted
            WHERE counted.rows_until - counted.messages < wanted.quota
        ) AS p
    ))
    RETURNING lane, refs
),
named AS MATERIALIZED (SELECT unnest(refs) AS id, 0 AS rescues FROM gone),
