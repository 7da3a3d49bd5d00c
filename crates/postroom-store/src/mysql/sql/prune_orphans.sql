-- Deliveries, dead or not, some at a time. {after} which number, {rows}.
SELECT DISTINCT seq FROM outbox_delivery FORCE INDEX (outbox_delivery_number)
WHERE seq > {after} ORDER BY seq LIMIT {rows}
