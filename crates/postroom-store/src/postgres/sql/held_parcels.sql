-- The parcels of a claim, which is locked: settlements of one claim take turns, and one that waited for a
-- rescue finds nothing. Begins the statements that settle them. $1 token.
WITH mine AS MATERIALIZED (
    SELECT lanes, numbers, messages FROM core_outbox.claim WHERE token = $1 FOR UPDATE
),
held AS MATERIALIZED (
    SELECT p.ctid AS place, p.refs, p.integration
    FROM mine
    CROSS JOIN LATERAL unnest(mine.lanes, mine.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT ctid, refs, integration FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
),
