-- Makes such deliveries say what their messages say by now. Waits for nobody: whoever changes a
-- message by hand holds it, and comes for its delivery next. Lock order: delivery, message.
-- $1 ids. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is
-- read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($1) AND claim IS NULL
    FOR UPDATE SKIP LOCKED
),
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
      AND status IN ('PENDING', 'FAILED', 'DEAD')
    FOR SHARE SKIP LOCKED
)
UPDATE core_outbox.delivery d
SET due_at = said.due_at, since = said.due_at, integration = said.integration_type,
    lane = core_outbox.lane_of(said.integration_type), state = core_outbox.state_of(said.status)
FROM held JOIN said ON said.id = held.message_id
WHERE d.message_id = held.message_id AND d.message_id = ANY ($1)
RETURNING d.message_id
