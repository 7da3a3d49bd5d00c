-- The integrations of what is open, by loose index scans: one look-up per lane, however large the
-- backlog. They go by the number of the lane; of two integrations that shared one of its 2^64, one would
-- be seen.
WITH RECURSIVE fresh AS (
    (SELECT lane, integration FROM core_outbox.parcel ORDER BY lane, number LIMIT 1)
    UNION ALL
    SELECT next.lane, next.integration
    FROM fresh
    CROSS JOIN LATERAL (
        SELECT p.lane, p.integration FROM core_outbox.parcel p
        WHERE p.lane > fresh.lane
        ORDER BY p.lane, p.number LIMIT 1
    ) AS next
),
due AS (
    (SELECT lane, integration FROM core_outbox.delivery
     WHERE state IN ('w', 'f') AND rescues = 0
     ORDER BY lane, due_at, seq LIMIT 1)
    UNION ALL
    SELECT next.lane, next.integration
    FROM due
    CROSS JOIN LATERAL (
        SELECT d.lane, d.integration FROM core_outbox.delivery d
        WHERE d.state IN ('w', 'f') AND d.rescues = 0 AND d.lane > due.lane
        ORDER BY d.lane, d.due_at, d.seq LIMIT 1
    ) AS next
)
SELECT integration FROM fresh
UNION
SELECT integration FROM due
UNION
SELECT DISTINCT integration FROM core_outbox.delivery
WHERE claim IS NULL AND state IN ('w', 'f') AND rescues > 0
ORDER BY integration
