-- Ends a claim on parcels in which nothing is open, whatever the relay thinks: part of its batch may be
-- recorded beside this, or could not be. Then it stays, and its end brings back what is left. Follows
-- `held_parcels.sql`. $1 token.
whole AS MATERIALIZED (
    SELECT FROM mine
    WHERE NOT EXISTS (
        SELECT FROM held
        CROSS JOIN LATERAL unnest(held.refs) AS named (id)
        CROSS JOIN LATERAL (
            SELECT FROM core_outbox.integration_outbox m
            WHERE m.id = named.id AND m.status IN ('PENDING', 'FAILED')
            OFFSET 0
        ) AS open
        WHERE named.id <> ALL (ARRAY(
                  SELECT d.message_id FROM core_outbox.delivery d
                  WHERE d.message_id = ANY (ARRAY(SELECT unnest(refs) FROM held))
              ))
          AND named.id <> ALL (ARRAY(SELECT unnest(ids) FROM core_outbox.sent WHERE token = $1))
    )
),
