-- Takes claimed messages from their relay. Only the delivery's own claim is cleared: the rest of
-- the batch stays held. What was changed by hand meanwhile is followed. Lock order: delivery,
-- message. $1 seqs, $2 a fresh token, $3 action (for `record_action.sql`, which follows), $4 ids. Runs
-- under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE seq = ANY ($1) AND message_id = ANY ($4) AND claim IS NOT NULL
    FOR UPDATE
),
said AS (
    SELECT id, status, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR UPDATE
),
changed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, due_at = now(), integration = said.integration_type,
        failed = said.status = 'FAILED', dead = said.status = 'DEAD'
    FROM said
    WHERE d.message_id = said.id AND d.seq = ANY ($1)
    RETURNING d.message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox
    SET due_at = now(), updated_at = now(), settled = $2
    WHERE id = ANY (ARRAY(SELECT message_id FROM changed))
      AND status IN ('PENDING', 'FAILED')
)
