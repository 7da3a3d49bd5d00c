-- Claims the parcels that are `due` and fit, and moves the marks. Follows `take_parcels.sql` or `sweep.sql`,
-- which say what the parameters are.
taken AS MATERIALIZED (
    SELECT count(*) AS parcels, coalesce(sum(messages), 0)::bigint AS messages,
           array_agg(lane) AS lanes, array_agg(number) AS numbers,
           coalesce(bool_or(is_late), false) AS is_late
    FROM due
    WHERE fits
),
held AS (
    -- The relay's id as in `take.sql`.
    INSERT INTO core_outbox.claim (token, worker, since, relay, lanes, numbers, messages)
    SELECT $1, $2, now(), (SELECT id FROM core_outbox.relay WHERE id = $3 AND until >= now()),
           lanes, numbers, messages
    FROM taken
    WHERE parcels > 0
),
moved AS (
    UPDATE core_outbox.lane_cursor c
    SET mark = greatest(c.mark, (SELECT max(number) FROM due WHERE due.lane = c.lane AND fits))
    WHERE c.lane = ANY (ARRAY(SELECT DISTINCT lane FROM due WHERE fits))
)
-- What was taken; which lanes have more than fits, by their place in $4, and whether nothing was taken of one
-- for that; whether some lane has no cursor; what there may be besides. That is a hint, as old as this
-- statement: whoever acts on it looks again.
SELECT taken.parcels, taken.messages,
       ARRAY(SELECT place FROM due WHERE NOT fits) AS full_lanes,
       EXISTS (SELECT FROM due WHERE is_first AND NOT fits) AS is_one_too_large,
       EXISTS (SELECT FROM wanted WHERE lane <> ALL (ARRAY(SELECT lane FROM here))) AS lacks_cursor,
       -- Parcels that committed after younger ones had been taken: some are among these, or there are some in
       -- a lane that has room for them.
       taken.is_late OR EXISTS (
           SELECT FROM here
           CROSS JOIN LATERAL (
               SELECT FROM core_outbox.parcel o
               WHERE o.lane = here.lane AND o.number > here.low_water AND o.number <= here.mark
                 AND NOT (o.lane, o.number) IN (
                     SELECT held.lane, held.number
                     FROM core_outbox.claim c
                     CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
                     WHERE c.lanes IS NOT NULL
                 )
               ORDER BY o.lane, o.number
               LIMIT 1
           ) AS late
           WHERE here.mark > here.low_water
             AND here.lane <> ALL (ARRAY(SELECT lane FROM due WHERE NOT fits))
       ) AS has_late,
       EXISTS (
           SELECT FROM core_outbox.pending_edit e WHERE e.lane = ANY (ARRAY(SELECT lane FROM here))
       ) AS has_edits,
       $9::boolean AND EXISTS (
           SELECT FROM wanted
           CROSS JOIN LATERAL (
               SELECT FROM core_outbox.delivery d
               WHERE d.lane = wanted.lane AND d.integration = wanted.integration
                 AND d.claim IS NULL AND d.state IN ('w', 'f') AND d.rescues = 0
                 AND d.due_at <= now()
               -- By due time: what is delayed is never looked at.
               ORDER BY d.due_at, d.seq
               LIMIT 1
           ) AS d
       ) AS has_due
FROM taken
