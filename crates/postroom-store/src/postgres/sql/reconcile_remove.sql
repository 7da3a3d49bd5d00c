-- Removes such deliveries, if they still are. Waits for nobody: whoever opens a message again holds
-- it, and comes for its delivery next. Lock order: delivery, message. $1 ids. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($1) AND claim IS NULL
    FOR UPDATE SKIP LOCKED
),
there AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
),
closed AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
      AND status NOT IN ('PENDING', 'FAILED', 'DEAD')
    FOR SHARE SKIP LOCKED
)
DELETE FROM core_outbox.delivery d
USING held
LEFT JOIN there ON there.id = held.message_id
LEFT JOIN closed ON closed.id = held.message_id
WHERE d.message_id = held.message_id AND d.message_id = ANY ($1)
  AND (closed.id IS NOT NULL OR there.id IS NULL)
RETURNING d.message_id
