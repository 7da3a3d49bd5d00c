-- A loose index scan: one look-up per integration, however large the backlog.
WITH RECURSIVE lane AS (
    (SELECT integration FROM core_outbox.delivery
     WHERE claim IS NULL AND NOT dead AND rescues = 0
     ORDER BY integration LIMIT 1)
    UNION ALL
    SELECT (SELECT d.integration FROM core_outbox.delivery d
            WHERE d.claim IS NULL AND NOT d.dead AND d.rescues = 0
              AND d.integration > lane.integration
            ORDER BY d.integration LIMIT 1)
    FROM lane
    WHERE lane.integration IS NOT NULL
)
SELECT integration FROM lane WHERE integration IS NOT NULL
UNION
SELECT DISTINCT integration FROM core_outbox.delivery
WHERE claim IS NULL AND NOT dead AND rescues > 0
ORDER BY integration
