-- The same for outboxes that keep no history. $1 a fresh token, which nothing is left to carry,
-- $2 ids, $3 how many dispatches were over when this one began.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND dispatch = $3 AND state IN ('w', 'f')
      AND $1::uuid IS NOT NULL
    RETURNING message_id
),
forgotten AS (
    DELETE FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM gone))
    RETURNING id, attempts
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM forgotten WHERE attempts > 0))
)
SELECT message_id FROM gone
