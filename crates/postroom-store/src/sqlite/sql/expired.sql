-- Claims whose relay left or has expired, and for how long they were held. ?1 now, ?2 claims, ?3 the relay
-- that asks, whose own are left out.
SELECT c.token, c.worker, c.alone, coalesce(r.until, ?1) - c.since, c.dispatched, c.parcels
FROM outbox_claim AS c LEFT JOIN outbox_relay AS r ON r.id = c.relay
WHERE (r.until IS NULL OR r.until < ?1)
  AND c.relay <> ?3
LIMIT ?2
