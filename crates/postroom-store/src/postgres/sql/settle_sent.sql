-- $1 token, $2 ids. What the delete does not return was lost to another relay. When the whole
-- batch is gone, so is its claim.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE message_id = ANY ($2) AND claim = $1
    RETURNING message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
    -- An array and not a join: one look-up by key per message under every plan.
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM gone))
),
ended AS (
    DELETE FROM core_outbox.claim
    WHERE token = $1 AND cardinality(ids) = (SELECT count(*) FROM gone)
)
SELECT message_id FROM gone
