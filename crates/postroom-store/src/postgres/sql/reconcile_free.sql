-- Frees such deliveries. $1 seqs, $2 their claims: a token is never used twice, so one that was
-- taken again meanwhile is left alone.
UPDATE core_outbox.delivery d
SET claim = NULL,
    -- Sent elsewhere by hand while it was claimed.
    integration = coalesce((SELECT m.integration_type FROM core_outbox.integration_outbox m
                            WHERE m.id = d.message_id), d.integration)
FROM unnest($1::bigint[], $2::uuid[]) AS stray (seq, claim)
WHERE d.seq = stray.seq AND d.claim = stray.claim AND d.seq = ANY ($1)
RETURNING d.seq
