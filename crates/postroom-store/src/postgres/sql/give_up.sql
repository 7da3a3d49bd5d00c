-- Gives up claims of which their relay has nothing in hand. They name nobody, and losing them counts for
-- nothing. One that is locked is being settled or rescued this very moment: the next heartbeat sees
-- what came of it. $1 tokens, $2 relay.
UPDATE core_outbox.claim
SET relay = '00000000-0000-0000-0000-000000000000', alone = false, dispatched = true
WHERE token = ANY (ARRAY(
    SELECT token FROM core_outbox.claim
    WHERE token = ANY ($1) AND relay = $2
    FOR UPDATE SKIP LOCKED
))
