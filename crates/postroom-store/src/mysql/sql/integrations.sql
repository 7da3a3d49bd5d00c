-- The integrations that have something waiting. A look-up per integration, however large the backlog.
WITH RECURSIVE
fresh (integration) AS (
    SELECT MIN(integration) FROM outbox_parcel
    UNION ALL
    SELECT (SELECT MIN(p.integration) FROM outbox_parcel AS p WHERE p.integration > fresh.integration)
    FROM fresh WHERE fresh.integration IS NOT NULL
),
ready (integration) AS (
    SELECT MIN(integration) FROM outbox_delivery WHERE queue = 0
    UNION ALL
    SELECT (SELECT MIN(d.integration) FROM outbox_delivery AS d
            WHERE d.queue = 0 AND d.integration > ready.integration)
    FROM ready WHERE ready.integration IS NOT NULL
),
rescued (integration) AS (
    SELECT MIN(integration) FROM outbox_delivery WHERE queue = 1
    UNION ALL
    SELECT (SELECT MIN(d.integration) FROM outbox_delivery AS d
            WHERE d.queue = 1 AND d.integration > rescued.integration)
    FROM rescued WHERE rescued.integration IS NOT NULL
)
SELECT integration FROM fresh WHERE integration IS NOT NULL
UNION
SELECT integration FROM ready WHERE integration IS NOT NULL
UNION
SELECT integration FROM rescued WHERE integration IS NOT NULL
ORDER BY integration
