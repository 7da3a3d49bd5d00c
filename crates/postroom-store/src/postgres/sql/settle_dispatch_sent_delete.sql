-- The same for outboxes that keep no history. $1 a fresh token, which nothing is left to carry,
-- $2 seqs, $3 how many dispatches were over when this one began, $4 ids.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND message_id = ANY ($4) AND dispatch = $3 AND NOT dead
      AND $1::uuid IS NOT NULL
    RETURNING seq, message_id
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
SELECT seq FROM gone
