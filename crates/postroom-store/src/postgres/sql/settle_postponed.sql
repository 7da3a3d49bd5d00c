-- Back to the lane, due later (`put_off.sql`). $1 token, $2 seqs, $3 delays in seconds. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH held AS (
    SELECT seq, message_id, due_at, integration, failed, dispatch FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND claim = $1
    FOR UPDATE
),
