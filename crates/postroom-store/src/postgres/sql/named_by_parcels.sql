-- What a claim on parcels holds, without reading it. $1 token.
SELECT named.message_id, 0 AS rescues, p.due_at, c.token AS claim, 0 AS dispatch, p.lane
FROM core_outbox.claim c
CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
CROSS JOIN LATERAL (
    SELECT * FROM core_outbox.parcel o
    WHERE o.lane = held.lane AND o.number = held.number
    OFFSET 0
) AS p
CROSS JOIN LATERAL unnest(p.refs) AS named (message_id)
WHERE c.token = $1
