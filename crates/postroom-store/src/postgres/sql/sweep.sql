-- Takes parcels between the marks of their lanes: what committed after younger ones had been taken. The
-- lanes are locked already, by a statement before this one: it must see what that waited for.
-- $1 to $7 as in `take_parcels.sql`, $8 the tokens of what was taken just before, which use up their part
-- of the rows. Reads nothing when they have used up all.
WITH beside AS MATERIALIZED (
    SELECT lane, sum(rows) AS rows
    FROM (
        SELECT d.lane, count(*) AS rows
        FROM core_outbox.delivery d
        WHERE d.message_id = ANY (ARRAY(
            SELECT unnest(ids) FROM core_outbox.claim WHERE token = ANY ($8::uuid[])
        ))
        GROUP BY d.lane
        UNION ALL
        -- Lanes stand together in a claim, and most claims have one.
        SELECT c.lanes[1], c.messages
        FROM core_outbox.claim c
        WHERE c.token = ANY ($8::uuid[]) AND c.lanes[1] = c.lanes[cardinality(c.lanes)]
        UNION ALL
        SELECT held.lane, sum(cardinality(p.refs))
        FROM core_outbox.claim c
        CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
        JOIN core_outbox.parcel p ON p.lane = held.lane AND p.number = held.number
        WHERE c.token = ANY ($8::uuid[]) AND c.lanes[1] <> c.lanes[cardinality(c.lanes)]
        GROUP BY held.lane
    ) AS taken
    GROUP BY lane
),
wanted AS MATERIALIZED (
    SELECT core_outbox.lane_of(w.integration) AS lane, w.integration, w.place,
           w.quota - coalesce((SELECT rows FROM beside
                               WHERE beside.lane = core_outbox.lane_of(w.integration)), 0)::bigint
               AS quota
    FROM unnest($4::text[], $5::int[]) WITH ORDINALITY AS w (integration, quota, place)
),
claimed AS MATERIALIZED (
    SELECT held.lane, held.number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.lanes IS NOT NULL
),
due AS MATERIALIZED (
    SELECT p.lane, p.number, p.messages, p.bytes,
           p.rows_until <= wanted.quota AS fits_lane,
           sum(p.messages) OVER through AS rows_until,
           sum(p.bytes::float8) OVER through AS bytes_until
    FROM wanted
    JOIN core_outbox.lane_cursor c ON c.lane = wanted.lane
    CROSS JOIN LATERAL (
        SELECT p.lane, p.number, p.messages, p.bytes, wanted.place,
               sum(p.messages) OVER (ORDER BY p.number ROWS UNBOUNDED PRECEDING) AS rows_until
        FROM (
            SELECT o.lane, o.number, cardinality(o.refs) AS messages, o.bytes
            FROM core_outbox.parcel o
            WHERE o.lane = wanted.lane AND o.number > c.low_water AND o.number <= c.mark
              AND o.integration = wanted.integration
              AND NOT (o.lane, o.number) IN (SELECT lane, number FROM claimed)
            ORDER BY o.lane, o.number
            LIMIT greatest(wanted.quota, 0)
        ) AS p
    ) AS p
    WHERE wanted.quota > 0 AND c.mark > c.low_water
    WINDOW through AS (ORDER BY p.place, p.number ROWS UNBOUNDED PRECEDING)
),
picked AS MATERIALIZED (
    SELECT lane, number, messages FROM due
    WHERE fits_lane AND rows_until + (SELECT coalesce(sum(rows), 0) FROM beside)::bigint <= $6::bigint
      AND bytes_until - bytes < $7::bigint::float8
      AND (messages = 1 OR bytes_until <= $7::bigint::float8)
),
held AS (
    -- The relay's id as in `take.sql`.
    INSERT INTO core_outbox.claim (token, worker, since, relay, lanes, numbers, messages)
    SELECT $1, $2, now(), (SELECT id FROM core_outbox.relay WHERE id = $3 AND until >= now()),
           array_agg(lane), array_agg(number), sum(messages)
    FROM picked
    HAVING count(*) > 0
)
SELECT EXISTS (SELECT FROM due WHERE lane <> ALL (ARRAY(SELECT lane FROM picked))),
       (SELECT count(*) FROM picked), (SELECT coalesce(sum(messages), 0)::bigint FROM picked)
