-- The same for outboxes that keep no history. Follows `held_parcels.sql`. $1 token, $2 ids, $3 for how many
-- seconds their events are remembered (`remember.sql`, which follows).
changed AS (
    DELETE FROM core_outbox.integration_outbox m
    -- IS TRUE, and an array, as in `settle_parcels_sent.sql`.
    WHERE m.id = ANY ($2) AND (m.id IN (SELECT unnest(refs) FROM held)) IS TRUE
      AND m.id <> ALL (ARRAY(SELECT d.message_id FROM core_outbox.delivery d
                             WHERE d.message_id = ANY ($2)))
      -- As in `settle_parcels_sent.sql`.
      AND NOT (m.status = 'SENT' AND m.settled IS NOT NULL)
    RETURNING m.id, m.attempts, now() AS sent_at, m.source_event_id, m.source_stream_id,
              m.integration_type, m.copy, m.headers
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM changed WHERE attempts > 0))
),
whole AS MATERIALIZED (SELECT FROM mine WHERE messages = (SELECT count(*) FROM changed)),
