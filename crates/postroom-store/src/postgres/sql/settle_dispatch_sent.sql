-- Like `settle_sent.sql`, by the number of a dispatch: whoever holds the claim. $1 a fresh token,
-- $2 ids, $3 how many dispatches were over when this one began.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND dispatch = $3 AND state <> 'd'
    RETURNING message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
    -- An array and not a join: one look-up by key per message under every plan.
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM gone))
)
SELECT message_id FROM gone
