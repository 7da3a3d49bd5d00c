-- The same for outboxes that keep no history. Follows `held_parcels.sql`. $1 token, $2 ids.
marked AS (
    DELETE FROM core_outbox.integration_outbox m
    -- IS TRUE as in `settle_parcels_sent.sql`.
    WHERE m.id = ANY ($2) AND (m.id IN (SELECT unnest(refs) FROM held)) IS TRUE
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id)
    RETURNING m.id, m.attempts
),
attempts_forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(SELECT id FROM marked WHERE attempts > 0))
),
whole AS MATERIALIZED (SELECT FROM mine WHERE messages = (SELECT count(*) FROM marked)),
