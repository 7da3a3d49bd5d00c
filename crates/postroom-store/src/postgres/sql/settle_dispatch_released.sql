-- Like `settle_released.sql`, by the number of a dispatch, which is over: its job is gone. $1 a fresh
-- token, which nothing carries, $2 seqs, $3 how many dispatches were over when this one began, $4
-- ids.
WITH held AS (
    SELECT seq, message_id, dispatch + 1 AS dispatch FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND message_id = ANY ($4) AND dispatch = $3 AND NOT dead
      AND $1::uuid IS NOT NULL
    FOR UPDATE
),
