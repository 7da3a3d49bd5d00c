-- Expired claims, and for how long each was held; a clause that locks follows. {tokens}, {alive} relays.
SELECT token, worker, alone,
       GREATEST(0, TIMESTAMPDIFF(MICROSECOND, since, COALESCE(
           (SELECT r.until FROM outbox_relay AS r WHERE r.id = c.relay), UTC_TIMESTAMP(6)))),
       dispatched, parcels
FROM outbox_claim AS c FORCE INDEX (PRIMARY)
WHERE token IN ({tokens}) AND relay NOT IN ({alive})
