-- Notes under a claim on parcels that messages were over when it was read: closed by hand before. Whoever
-- opens one of them again meets no attempt under way, and need not wait for the claim's end. Waits for
-- nobody: of a message that somebody is changing, the claim's end finds out. $1 token, $2 ids.
UPDATE core_outbox.integration_outbox m SET settled = $1
WHERE m.id = ANY (ARRAY(
    SELECT o.id FROM core_outbox.integration_outbox o
    WHERE o.id = ANY ($2) AND NOT core_outbox.is_waiting(o.status)
    FOR NO KEY UPDATE SKIP LOCKED
))
