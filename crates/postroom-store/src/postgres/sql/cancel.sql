-- Waiting messages become dead; a claimed one is left to its relay. What is in a parcel that nobody holds
-- has its delivery by now, by a statement before this one. Lock order: lane, delivery, message. $1 ids, $2 a
-- fresh token, $3 action (for `record_action.sql`, which follows). Runs under JOIN_BY_HASH of
-- `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id FROM core_outbox.delivery
    WHERE message_id = ANY ($1) AND state <> 'd' AND claim IS NULL
    FOR UPDATE
),
said AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held)) AND status IN ('PENDING', 'FAILED')
    FOR UPDATE
),
freed AS (
    UPDATE core_outbox.delivery d
    SET state = 'd', rescues = 0 /*ledger: , last_error = 'cancelled', since = now() */
    FROM said
    WHERE d.message_id = said.id AND d.message_id = ANY ($1)
    RETURNING d.message_id
),
changed AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'DEAD', last_error = 'cancelled', updated_at = now(), settled = $2
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM freed))
    RETURNING m.id
)
