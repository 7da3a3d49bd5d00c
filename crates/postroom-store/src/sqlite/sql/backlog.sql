-- How much waits, by integration. What is in parcels above the marks was never taken; of those below, what
-- no claim names waits too. They are compared by key, as sets. ?1 now.
WITH swept (integration, seq, message_id, due_at) AS (
    SELECT p.integration, p.seq, p.message_id, p.due_at
    FROM outbox_lane_cursor AS c
    CROSS JOIN outbox_parcel AS p ON p.integration = c.integration AND p.seq <= c.mark
    EXCEPT
    SELECT integration, seq, message_id, due_at FROM outbox_in_flight
),
counted (integration, pending, claimed, failed, dead, since) AS (
    SELECT integration,
           count(*) FILTER (WHERE claim IS NULL AND state = 'w'),
           count(*) FILTER (WHERE claim IS NOT NULL),
           count(*) FILTER (WHERE claim IS NULL AND state = 'f'),
           count(*) FILTER (WHERE claim IS NULL AND state = 'd'),
           min(since) FILTER (WHERE claim IS NULL AND state <> 'd')
    FROM outbox_delivery GROUP BY integration
    UNION ALL
    SELECT p.integration, count(*), 0, 0, 0, min(p.due_at)
    FROM outbox_parcel AS p
    LEFT JOIN outbox_lane_cursor AS c ON c.integration = p.integration
    WHERE p.seq > coalesce(c.mark, -9223372036854775808)
    GROUP BY p.integration
    UNION ALL
    SELECT integration, count(*), 0, 0, 0, min(due_at) FROM swept GROUP BY integration
    UNION ALL
    SELECT integration, 0, count(*), 0, 0, NULL FROM outbox_in_flight GROUP BY integration
)
SELECT integration, sum(pending), sum(claimed), sum(failed), sum(dead),
       max(0, coalesce(?1 - min(since), 0))
FROM counted GROUP BY integration ORDER BY integration
