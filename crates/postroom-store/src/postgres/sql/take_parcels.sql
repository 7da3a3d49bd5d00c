-- Takes parcels above the marks of their lanes: those that fit whole, in order. $1 token, $2 worker,
-- $3 relay, $4 integrations, $5 rows per integration, $6 rows over all, $7 bytes over all, $8 parcels to
-- look at in each lane: where they are full, a few are enough; $9 whether deliveries are looked for.
--
-- One statement: of the lane's cursor it gets the newest version, and above the newest mark nothing was
-- ever claimed. It returns numbers and no content: a client that stops reading would keep the lane
-- locked with it. `claim_parcels.sql` follows.
WITH wanted AS MATERIALIZED (
    SELECT core_outbox.lane_of(w.integration) AS lane, w.integration, w.place, w.quota
    FROM unnest($4::text[], $5::int[]) WITH ORDINALITY AS w (integration, quota, place)
),
here AS MATERIALIZED (
    SELECT c.lane, c.mark, c.low_water FROM core_outbox.lane_cursor c
    WHERE c.lane = ANY (ARRAY(SELECT lane FROM wanted))
    ORDER BY c.lane
    FOR UPDATE
),
due AS MATERIALIZED (
    SELECT p.lane, p.number, p.messages, p.place, p.number <= here.mark AS is_late,
           p.rows_until = p.messages AS is_first,
           p.rows_until <= wanted.quota
               AND sum(p.rows) OVER through <= $6::bigint
               AND sum(p.size) OVER through - p.size < $7::bigint::float8
               AND (p.messages = 1 OR sum(p.size) OVER through <= $7::bigint::float8)
               AS fits
    FROM wanted
    JOIN here ON here.lane = wanted.lane
    CROSS JOIN LATERAL (
        -- What does not fit its lane counts for no other.
        SELECT p.*, wanted.place,
               CASE WHEN p.rows_until <= wanted.quota THEN p.messages ELSE 0 END AS rows,
               CASE WHEN p.rows_until <= wanted.quota THEN p.bytes::float8 ELSE 0 END AS size
        FROM (
            SELECT p.*,
                   sum(p.messages) OVER (ORDER BY p.number ROWS UNBOUNDED PRECEDING) AS rows_until
            FROM (
                SELECT o.lane, o.number, cardinality(o.refs) AS messages, o.bytes
                FROM core_outbox.parcel o
                WHERE o.lane = wanted.lane AND o.number > here.mark
                  AND o.integration = wanted.integration
                ORDER BY o.lane, o.number
                -- One more than can fit tells whether the lane is full.
                LIMIT least(wanted.quota::bigint + 1, $8::int)
            ) AS p
        ) AS p
    ) AS p
    WINDOW through AS (ORDER BY p.place, p.number ROWS UNBOUNDED PRECEDING)
),
