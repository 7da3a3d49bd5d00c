-- The same for outboxes that keep no history. $1 token, $2 ids. Attempts from before a redrive
-- are left to the sweep: looking for them would cost every completion.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
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
