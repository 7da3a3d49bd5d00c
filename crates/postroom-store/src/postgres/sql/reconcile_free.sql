-- Frees such deliveries, as the messages say by now. $1 seqs, $2 their claims: a token is never used
-- twice, so one that was taken again meanwhile is left alone.
UPDATE core_outbox.delivery d
SET claim = NULL,
    -- What was changed by hand while it was claimed. An aggregate, so that a message that was
    -- deleted changes nothing.
    (due_at, integration, failed, dead) = (
        SELECT coalesce(max(m.due_at), d.due_at),
               coalesce(max(m.integration_type), d.integration),
               coalesce(bool_or(m.status = 'FAILED'), d.failed),
               coalesce(bool_or(m.status = 'DEAD'), d.dead)
        FROM core_outbox.integration_outbox m
        WHERE m.id = d.message_id
    )
FROM unnest($1::bigint[], $2::uuid[]) AS stray (seq, claim)
WHERE d.seq = stray.seq AND d.claim = stray.claim AND d.seq = ANY ($1)
RETURNING d.seq
