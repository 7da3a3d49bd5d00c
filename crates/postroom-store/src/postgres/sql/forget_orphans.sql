-- Puts right deliveries whose message is deleted or was closed by hand: those of dead messages
-- follow them, the others go. Waits for nobody: a message that is locked is perhaps being opened
-- again. Then, and if it has been, its delivery stays, and the claim's end frees it. Lock order:
-- delivery, message. $1 ids just claimed. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays
-- beside the joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($1)
    FOR UPDATE SKIP LOCKED
),
there AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
),
closed AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held)) AND status NOT IN ('PENDING', 'FAILED')
    FOR SHARE SKIP LOCKED
),
buried AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, due_at = closed.due_at, integration = closed.integration_type,
        lane = core_outbox.lane_of(closed.integration_type), state = 'd'
    FROM held JOIN closed ON closed.id = held.message_id
    WHERE d.message_id = held.message_id AND d.message_id = ANY ($1) AND closed.status = 'DEAD'
)
DELETE FROM core_outbox.delivery d
USING held
LEFT JOIN there ON there.id = held.message_id
LEFT JOIN closed ON closed.id = held.message_id
WHERE d.message_id = held.message_id AND d.message_id = ANY ($1)
  AND (closed.status <> 'DEAD' OR there.id IS NULL)
RETURNING d.message_id
