-- Deliveries by integration. Without the CAST, MySQL says that the time is text.
SELECT integration,
       CAST(SUM(queue IN (0, 1) AND state = 'w') AS SIGNED),
       CAST(SUM(queue = 2) AS SIGNED),
       CAST(SUM(queue IN (0, 1) AND state = 'f') AS SIGNED),
       CAST(SUM(queue = 3) AS SIGNED),
       CAST(MIN(IF(queue IN (0, 1), since, NULL)) AS DATETIME(6))
FROM outbox_delivery GROUP BY integration
