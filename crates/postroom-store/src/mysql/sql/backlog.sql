-- Deliveries by integration.
SELECT integration,
       CAST(SUM(queue IN (0, 1) AND state = 'w') AS SIGNED),
       CAST(SUM(queue = 2) AS SIGNED),
       CAST(SUM(queue IN (0, 1) AND state = 'f') AS SIGNED),
       CAST(SUM(queue = 3) AS SIGNED),
       MIN(IF(queue IN (0, 1), due_at, NULL))
FROM outbox_delivery GROUP BY integration
