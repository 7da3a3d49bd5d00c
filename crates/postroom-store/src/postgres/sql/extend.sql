-- Which of these claims stand, extended. $1 tokens, $2 claim time in seconds. One that is locked is
-- being settled or rescued this very moment: it is not waited for, and the next time tells.
WITH free AS (
    SELECT token FROM core_outbox.claim WHERE token = ANY ($1) FOR UPDATE SKIP LOCKED
),
extended AS (
    UPDATE core_outbox.claim
    SET until = now() + make_interval(secs => $2)
    WHERE token = ANY (ARRAY(SELECT token FROM free))
)
SELECT token FROM core_outbox.claim WHERE token = ANY ($1)
