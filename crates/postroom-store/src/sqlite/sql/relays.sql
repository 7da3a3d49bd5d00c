-- Relays that live, expired lately, or still hold claims. ?1 long ago.
SELECT r.id, r.name, r.version, r.lanes, r.started_at, r.until, count(c.token)
FROM outbox_relay AS r LEFT JOIN outbox_claim AS c ON c.relay = r.id
GROUP BY r.id
HAVING r.until >= ?1 OR count(c.token) > 0
ORDER BY r.name, r.started_at, r.id
