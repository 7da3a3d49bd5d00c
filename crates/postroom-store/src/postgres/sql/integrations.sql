-- A loose index scan: one look-up per integration, however large the backlog. It goes by the
-- number that leads the index; of two integrations that shared one of its 2^64, one would be seen.
WITH RECURSIVE lane AS (
    (SELECT hashtextextended(integration, 0) AS number, integration
     FROM core_outbox.delivery
     WHERE claim IS NULL AND NOT dead AND rescues = 0
     ORDER BY hashtextextended(integration, 0) LIMIT 1)
    UNION ALL
    SELECT next.number, next.integration
    FROM lane
    CROSS JOIN LATERAL (
        SELECT hashtextextended(d.integration, 0) AS number, d.integration
        FROM core_outbox.delivery d
        WHERE d.claim IS NULL AND NOT d.dead AND d.rescues = 0
          AND hashtextextended(d.integration, 0) > lane.number
        ORDER BY hashtextextended(d.integration, 0) LIMIT 1
    ) AS next
)
SELECT integration FROM lane
UNION
SELECT DISTINCT integration FROM core_outbox.delivery
WHERE claim IS NULL AND NOT dead AND rescues > 0
ORDER BY integration
