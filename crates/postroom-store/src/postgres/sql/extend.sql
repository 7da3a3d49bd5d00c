-- $1 tokens, $2 claim time in seconds.
UPDATE core_outbox.claim
SET until = now() + make_interval(secs => $2)
WHERE token = ANY ($1)
RETURNING token
