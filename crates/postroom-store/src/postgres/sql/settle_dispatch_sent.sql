-- Like `settle_sent.sql`, by the number of a dispatch: whoever holds the claim. $1 a fresh token,
-- $2 seqs, $3 how many dispatches were over when this one began, $4 the messages' ids: after a
-- TRUNCATE their numbers may be those of others.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND message_id = ANY ($4) AND dispatch = $3 AND NOT dead
    RETURNING seq, message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox
    SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
    -- An array and not a join: one look-up by key per message under every plan.
    WHERE id = ANY (ARRAY(SELECT message_id FROM gone))
)
SELECT seq FROM gone
