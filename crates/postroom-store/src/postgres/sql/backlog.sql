-- How much waits, by integration. What is in parcels that nobody holds is pending; what is in parcels that
-- somebody holds is claimed as far as nothing is recorded yet.
WITH held AS MATERIALIZED (
    SELECT lane, number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.lanes IS NOT NULL
),
counted AS (
    SELECT integration,
           count(*) FILTER (WHERE claim IS NULL AND state = 'w') AS pending,
           count(*) FILTER (WHERE claim IS NOT NULL) AS claimed,
           count(*) FILTER (WHERE claim IS NULL AND state = 'f') AS failed,
           count(*) FILTER (WHERE claim IS NULL AND state = 'd') AS dead,
           min(since) FILTER (WHERE claim IS NULL AND state IN ('w', 'f')) AS since
    FROM core_outbox.delivery
    GROUP BY integration
    UNION ALL
    SELECT p.integration, sum(cardinality(p.refs)), 0, 0, 0, min(p.due_at)
    FROM core_outbox.parcel p
    WHERE NOT (p.lane, p.number) IN (SELECT lane, number FROM held)
    GROUP BY p.integration
    UNION ALL
    SELECT f.integration, 0, count(*), 0, 0, NULL
    FROM core_outbox.in_flight f
    -- OFFSET 0: one look-up by key under every plan. Under the statistics of a new table, a join took a
    -- second of the relay's first seconds.
    CROSS JOIN LATERAL (
        SELECT m.settled FROM core_outbox.integration_outbox m
        WHERE m.id = f.message_id
        OFFSET 0
    ) AS m
    WHERE m.settled IS NULL
      AND NOT EXISTS (
          SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id OFFSET 0
      )
    GROUP BY f.integration
)
SELECT integration, sum(pending)::bigint AS pending, sum(claimed)::bigint AS claimed,
       sum(failed)::bigint AS failed, sum(dead)::bigint AS dead,
       greatest(extract(epoch FROM now() - min(since)) * 1000, 0)::bigint AS lag_ms
FROM counted
WHERE integration IS NOT NULL
GROUP BY integration
HAVING sum(pending) + sum(claimed) + sum(failed) + sum(dead) > 0
ORDER BY integration
