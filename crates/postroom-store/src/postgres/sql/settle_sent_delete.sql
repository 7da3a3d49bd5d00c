-- The same for outboxes that keep no history. $1 token, $2 seqs.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND claim = $1
    RETURNING seq, message_id
),
forgotten AS (
    DELETE FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM gone))
)
SELECT seq FROM gone
