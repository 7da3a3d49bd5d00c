-- Like `settle_postponed.sql`, by the number of a dispatch, which is over. $1 a fresh token, which
-- nothing carries, $2 and $3 as there, $4 how many dispatches were over when this one began.
WITH held AS (
    SELECT message_id, due_at, integration, state, dispatch + 1 AS dispatch
    FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND dispatch = $4 AND state <> 'd'
      AND $1::uuid IS NOT NULL
    FOR UPDATE
),
