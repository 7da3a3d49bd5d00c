-- Frees the deliveries in `held`, as their messages say by now. Follows the statements that release.
-- $2 seqs.
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR SHARE
)
UPDATE core_outbox.delivery d
SET claim = NULL, dispatch = held.dispatch,
    due_at = coalesce(said.due_at, d.due_at),
    integration = coalesce(said.integration_type, d.integration),
    failed = coalesce(said.status = 'FAILED', d.failed),
    dead = coalesce(said.status = 'DEAD', d.dead)
FROM held LEFT JOIN said ON said.id = held.message_id
WHERE d.seq = held.seq AND d.seq = ANY ($2)
RETURNING d.seq
