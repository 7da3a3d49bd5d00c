-- The same for outboxes that keep no history. $1 token, $2 ids.
WITH mine AS MATERIALIZED (
    SELECT lanes, numbers, messages FROM core_outbox.claim WHERE token = $1 FOR UPDATE
),
held AS MATERIALIZED (
    SELECT p.ctid AS place, p.refs
    FROM mine
    CROSS JOIN LATERAL unnest(mine.lanes, mine.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT ctid, refs FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
),
marked AS (
    DELETE FROM core_outbox.integration_outbox m
    -- IS TRUE as in `settle_parcels_sent.sql`.
    WHERE m.id = ANY ($2) AND (m.id IN (SELECT unnest(refs) FROM held)) IS TRUE
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id)
    RETURNING m.id, m.attempts
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM marked WHERE attempts > 0))
),
whole AS MATERIALIZED (SELECT FROM mine WHERE messages = (SELECT count(*) FROM marked)),
