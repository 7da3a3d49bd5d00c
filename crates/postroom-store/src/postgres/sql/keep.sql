-- Keeps a lease, and with it every claim that was taken under it: those, and which of them last by
-- the lease alone. $1 lease, $2 worker, $3 claim time in seconds.
WITH kept AS (
    INSERT INTO core_outbox.claim (token, worker, since, until, alone, dispatched)
    VALUES ($1, $2, now(), now() + make_interval(secs => $3), false, true)
    ON CONFLICT (token) DO UPDATE SET until = excluded.until
)
SELECT token, until < now() FROM core_outbox.claim WHERE lease = $1
