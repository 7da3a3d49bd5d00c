-- Back to the lane, due later (`put_off.sql`). $1 token, $2 ids, $3 delays in seconds. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT message_id, due_at, integration, state, dispatch FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
    FOR UPDATE
),
