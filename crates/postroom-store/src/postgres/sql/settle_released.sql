-- Back to the lane, as the message says by now (`follow_released.sql`): what was changed by hand
-- during the attempt is followed there, since the trigger leaves claimed deliveries alone. The
-- message is locked, so that a change that is being made is waited for. $1 token, $2 ids. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id, dispatch FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
    FOR UPDATE
),
