-- The parcels of a claim, which is locked: settlements of one claim take turns, and one that waited for a
-- rescue finds nothing. Begins the statements that settle them. $1 token. Read as in `read_parcels.sql`.
WITH mine AS MATERIALIZED (
    SELECT lanes, lanes[1] AS lane, numbers, messages FROM core_outbox.claim WHERE token = $1
    FOR UPDATE
),
named AS MATERIALIZED (
    SELECT named.lane, named.number
    FROM mine
    CROSS JOIN LATERAL unnest(mine.lanes, mine.numbers) AS named (lane, number)
),
span AS MATERIALIZED (
    SELECT lane, min(number) AS first, max(number) AS last FROM named GROUP BY lane
),
held AS MATERIALIZED (
    SELECT p.refs, p.integration
    FROM span
    CROSS JOIN LATERAL (
        SELECT refs, integration FROM core_outbox.parcel o
        WHERE o.lane = span.lane AND o.number BETWEEN span.first AND span.last
          AND ((o.lane, o.number) IN (SELECT lane, number FROM named)) IS TRUE
        OFFSET 0
    ) AS p
),
