-- Like `settle_postponed.sql`, by the number of a dispatch, which is over. $1 a fresh token, which
-- nothing carries, $2 and $3 as there, $4 how many dispatches were over when this one began, $5
-- ids.
WITH held AS (
    SELECT seq, message_id, due_at, integration, failed, dispatch + 1 AS dispatch
    FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND message_id = ANY ($5) AND dispatch = $4 AND NOT dead
      AND $1::uuid IS NOT NULL
    FOR UPDATE
),
