-- Relays that live, expired lately, or still hold claims. $1 for how many seconds expired ones count.
SELECT r.id, r.name, r.version, r.lanes, r.started_at, r.until, coalesce(held.claims, 0)
FROM core_outbox.relay r
LEFT JOIN (
    SELECT relay, count(*) AS claims FROM core_outbox.claim GROUP BY relay
) AS held ON held.relay = r.id
WHERE r.until >= now() - make_interval(secs => $1) OR held.claims > 0
ORDER BY r.name, r.started_at, r.id
