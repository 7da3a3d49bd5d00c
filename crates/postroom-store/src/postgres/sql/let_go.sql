-- Claims that no lease keeps any more. One that is locked is being settled or rescued this very
-- moment: the next time tells. $1 tokens.
UPDATE core_outbox.claim SET lease = NULL
WHERE token = ANY (ARRAY(
    SELECT token FROM core_outbox.claim WHERE token = ANY ($1) FOR UPDATE SKIP LOCKED
))
