-- Like `settle_released.sql`, by the number of a dispatch, which is over: its job is gone. $1 a fresh
-- token, which nothing carries, $2 ids, $3 how many dispatches were over when this one began.
WITH held AS (
    SELECT message_id, dispatch + 1 AS dispatch FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND dispatch = $3 AND state <> 'd'
      AND $1::uuid IS NOT NULL
    FOR UPDATE
),
