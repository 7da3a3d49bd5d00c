-- Takes parcels above the marks of their lanes: those that fit whole, in order. $1 token, $2 worker,
-- $3 relay, $4 integrations, $5 rows per integration, $6 rows over all, $7 bytes over
-- all, $8 the token of the deliveries that were taken just before, which use up their part of the rows,
-- $9 parcels to look at in each lane: where they are full, a few are enough.
--
-- One statement: of the lane's cursor it gets the newest version, and above the newest mark nothing was
-- ever claimed. It returns numbers and no content: a client that stops reading would keep the lane
-- locked with it.
WITH beside AS MATERIALIZED (
    SELECT d.lane, count(*) AS rows
    FROM core_outbox.delivery d
    WHERE d.message_id = ANY (ARRAY(SELECT unnest(ids) FROM core_outbox.claim WHERE token = $8))
    GROUP BY d.lane
),
wanted AS MATERIALIZED (
    SELECT core_outbox.lane_of(w.integration) AS lane, w.integration, w.place,
           w.quota - coalesce((SELECT rows FROM beside
                               WHERE beside.lane = core_outbox.lane_of(w.integration)), 0)::bigint
               AS quota
    FROM unnest($4::text[], $5::int[]) WITH ORDINALITY AS w (integration, quota, place)
),
here AS MATERIALIZED (
    SELECT c.lane, c.mark FROM core_outbox.lane_cursor c
    WHERE c.lane = ANY (ARRAY(SELECT lane FROM wanted))
    ORDER BY c.lane
    FOR UPDATE
),
due AS MATERIALIZED (
    SELECT p.lane, p.number, p.messages, p.bytes,
           p.rows_until <= wanted.quota AS fits_lane,
           sum(p.messages) OVER through AS rows_until,
           sum(p.bytes::float8) OVER through AS bytes_until
    FROM wanted
    JOIN here ON here.lane = wanted.lane
    CROSS JOIN LATERAL (
        SELECT p.lane, p.number, p.messages, p.bytes, wanted.place,
               sum(p.messages) OVER (ORDER BY p.number ROWS UNBOUNDED PRECEDING) AS rows_until
        FROM (
            SELECT o.lane, o.number, cardinality(o.refs) AS messages, o.bytes
            FROM core_outbox.parcel o
            WHERE o.lane = wanted.lane AND o.number > here.mark
              AND o.integration = wanted.integration
            ORDER BY o.lane, o.number
            LIMIT least(greatest(wanted.quota, 0), $9::int)
        ) AS p
    ) AS p
    WINDOW through AS (ORDER BY p.place, p.number ROWS UNBOUNDED PRECEDING)
),
picked AS MATERIALIZED (
    SELECT lane, number, messages FROM due
    WHERE fits_lane AND rows_until + (SELECT coalesce(sum(rows), 0) FROM beside)::bigint <= $6::bigint
      AND bytes_until - bytes < $7::bigint::float8
      AND (messages = 1 OR bytes_until <= $7::bigint::float8)
),
moved AS (
    UPDATE core_outbox.lane_cursor c
    SET mark = taken.last
    FROM (SELECT lane, max(number) AS last FROM picked GROUP BY lane) AS taken
    WHERE c.lane = taken.lane AND c.lane = ANY (ARRAY(SELECT DISTINCT lane FROM picked))
),
held AS (
    -- The relay's id as in `take.sql`.
    INSERT INTO core_outbox.claim (token, worker, since, relay, lanes, numbers, messages)
    SELECT $1, $2, now(), (SELECT id FROM core_outbox.relay WHERE id = $3 AND until >= now()),
           array_agg(lane), array_agg(number), sum(messages)
    FROM picked
    HAVING count(*) > 0
)
-- Whether some parcel did not fit, though nothing was taken of its lane; how many were taken, with how
-- many messages; whether some lane has no cursor.
SELECT EXISTS (SELECT FROM due WHERE lane <> ALL (ARRAY(SELECT lane FROM picked))),
       (SELECT count(*) FROM picked), (SELECT coalesce(sum(messages), 0)::bigint FROM picked),
       EXISTS (SELECT FROM wanted WHERE lane <> ALL (ARRAY(SELECT lane FROM here)))
