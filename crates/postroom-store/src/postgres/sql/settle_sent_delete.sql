-- The same for outboxes that keep no history. $1 token, $2 ids, $3 for how many seconds their events are
-- remembered (`remember.sql`, which follows). Attempts from before a redrive
-- are left to the sweep: looking for them would cost every completion.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
    RETURNING message_id
),
changed AS (
    DELETE FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM gone))
    RETURNING m.id, m.attempts, now() AS sent_at, m.source_event_id, m.source_stream_id,
              m.integration_type, m.copy, m.headers
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM changed WHERE attempts > 0))
),
