-- Waiting messages become dead; a claimed one is left to its relay. Lock order: delivery, message.
-- $1 seqs, $2 a fresh token, $3 action (for `record_action.sql`, which follows), $4 ids. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE seq = ANY ($1) AND message_id = ANY ($4) AND NOT dead AND claim IS NULL
    FOR UPDATE
),
said AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held)) AND status IN ('PENDING', 'FAILED')
    FOR UPDATE
),
freed AS (
    UPDATE core_outbox.delivery d
    SET dead = true, failed = false, rescues = 0
    FROM said
    WHERE d.message_id = said.id AND d.seq = ANY ($1)
    RETURNING d.message_id
),
changed AS (
    UPDATE core_outbox.integration_outbox
    SET status = 'DEAD', last_error = 'cancelled', updated_at = now(), settled = $2
    WHERE id = ANY (ARRAY(SELECT message_id FROM freed))
    RETURNING id
)
