-- Relays that live, expired lately, or still hold claims. Lately, in microseconds.
SELECT r.id, r.name, r.version, CAST(r.lanes AS SIGNED), r.started_at, r.until,
       COUNT(c.token)
FROM outbox_relay AS r LEFT JOIN outbox_claim AS c ON c.relay = r.id
GROUP BY r.id, r.name, r.version, r.lanes, r.started_at, r.until
HAVING r.until >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR COUNT(c.token) > 0
ORDER BY r.name, r.started_at, r.id
