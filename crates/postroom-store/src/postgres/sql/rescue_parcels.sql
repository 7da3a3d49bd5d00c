-- Makes deliveries of what expired claims on parcels hold. The claims are locked, by a statement before
-- this one: in one, it would make deliveries of messages that were settled while it waited. $1 tokens.
WITH held AS MATERIALIZED (
    SELECT p.ctid AS place, p.refs, c.token, (NOT c.dispatched)::int AS rescues
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT ctid, refs FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
    WHERE c.token = ANY ($1)
),
gone AS (DELETE FROM core_outbox.parcel WHERE ctid = ANY (ARRAY(SELECT place FROM held))),
ended AS (DELETE FROM core_outbox.claim WHERE token = ANY ($1)),
-- What is recorded, under this claim or after it was taken out of it, is over, unless somebody has opened it again
-- by hand since: then it was not lost. What is gone was not lost either: where no history is kept, all that was sent is gone.
named AS MATERIALIZED (
    SELECT one.id, m.settled IS NULL AS is_lost,
           CASE WHEN m.settled IS NULL THEN held.rescues ELSE 0 END AS rescues
    FROM held
    CROSS JOIN LATERAL unnest(held.refs) AS one (id)
    -- OFFSET 0: one look-up by key under every plan.
    CROSS JOIN LATERAL (
        SELECT o.settled, o.status FROM core_outbox.integration_outbox o WHERE o.id = one.id OFFSET 0
    ) AS m
    WHERE (m.settled IS NULL OR core_outbox.is_waiting(m.status))
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = one.id)
      AND NOT EXISTS (SELECT FROM core_outbox.sent s
                      WHERE s.token = held.token AND one.id = ANY (s.ids))
),
