-- The same for outboxes that keep no history. $1 token, $2 ids, $3 for how many seconds their events are
-- remembered (`remember.sql`, which follows). Attempts from before a redrive
-- are left to the sweep: looking for them would cost every completion.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
    RETURNING message_id
),
changed AS (
    DELETE FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM gone))
    RETURNING id, attempts, now() AS sent_at, source_event_id, source_stream_id, integration_type,
              copy, headers
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM changed WHERE attempts > 0))
),
