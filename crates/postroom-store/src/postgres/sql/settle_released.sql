-- Back to the queue, as the message says by now: what was changed by hand during the attempt is
-- followed here, since the trigger leaves claimed deliveries alone. The message is locked, so that
-- a change that is being made is waited for. $1 token, $2 seqs. Runs under JOIN_BY_HASH of
-- `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT seq, message_id FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND claim = $1
    FOR UPDATE
),
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR SHARE
)
UPDATE core_outbox.delivery d
SET claim = NULL,
    due_at = coalesce(said.due_at, d.due_at),
    integration = coalesce(said.integration_type, d.integration),
    failed = coalesce(said.status = 'FAILED', d.failed),
    dead = coalesce(said.status = 'DEAD', d.dead)
FROM held LEFT JOIN said ON said.id = held.message_id
WHERE d.seq = held.seq AND d.seq = ANY ($2)
RETURNING d.seq
