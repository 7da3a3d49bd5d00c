-- Removes dead deliveries whose message was deleted by hand. Looks at some dead deliveries at a
-- time, by their index, and answers where to go on; nothing at the end.
-- $1 and $2 after this integration and seq, $3 deliveries at most.
WITH seen AS (
    SELECT integration, seq, message_id FROM core_outbox.delivery
    WHERE state = 'd' AND claim IS NULL AND (integration, seq) > ($1, $2)
    ORDER BY integration, seq
    LIMIT $3
),
gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY (ARRAY(
        SELECT seen.message_id FROM seen
        WHERE NOT EXISTS (
            SELECT FROM core_outbox.integration_outbox m WHERE m.id = seen.message_id
        )
    ))
)
SELECT integration, seq FROM seen ORDER BY integration DESC, seq DESC LIMIT 1
