-- Forgets events whose time is over. $1 rows at most.
DELETE FROM core_outbox.remembered
WHERE key = ANY (ARRAY(
    SELECT key FROM core_outbox.remembered WHERE until < now() ORDER BY until LIMIT $1
    FOR UPDATE SKIP LOCKED
))
