-- The claims that name a relay, and whether each is older than a claim time. $1 relay, $2 claim time
-- in seconds.
SELECT token, since < now() - make_interval(secs => $2) FROM core_outbox.claim WHERE relay = $1
