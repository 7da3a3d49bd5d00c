-- What claims on parcels hold, to be read. $1 payload limit (for what follows), $2 tokens, $3 caution at
-- the least.
WITH taken AS (
    SELECT named.message_id, 0 AS rescues, p.due_at, c.token AS claim, 0 AS dispatch,
           greatest((p.largest > 16384)::int, $3::int) AS caution, p.lane,
           true AS is_fresh
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT * FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
    CROSS JOIN LATERAL unnest(p.refs) AS named (message_id)
    WHERE c.token = ANY ($2)
)
