-- Claims of others without a living relay. They are read by an index, in its order, and there are as many as
-- batches in flight. The relay that asks; {limit}.
SELECT c.token, c.relay FROM outbox_claim AS c FORCE INDEX (outbox_claim_relay)
LEFT JOIN outbox_relay AS alive FORCE INDEX (PRIMARY)
    ON alive.id = c.relay AND alive.until >= UTC_TIMESTAMP(6)
WHERE alive.id IS NULL AND c.relay <> ? ORDER BY c.relay, c.token LIMIT {limit}
