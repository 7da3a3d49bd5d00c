-- Sets the messages of deliveries that failed, and that this claim holds, back to PENDING: they are
-- about to be dispatched again. $1 token, $2 seqs. Returns those that somebody else has locked, and
-- waits for nobody. A message gets a fresh token, so that no earlier settlement can pass for this.
WITH wanted AS (
    SELECT seq FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND claim = $1 AND state = 'f'
),
held AS (
    SELECT seq, message_id FROM core_outbox.delivery
    WHERE seq = ANY ($2) AND claim = $1 AND state = 'f'
    FOR UPDATE SKIP LOCKED
),
free AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR NO KEY UPDATE SKIP LOCKED
),
reopened AS (
    UPDATE core_outbox.delivery SET state = 'w'
    WHERE message_id = ANY (ARRAY(
        SELECT message_id FROM held WHERE message_id = ANY (ARRAY(SELECT id FROM free))
    ))
    RETURNING seq
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'PENDING', updated_at = now(), settled = gen_random_uuid()
    WHERE m.id = ANY (ARRAY(SELECT id FROM free)) AND m.status = 'FAILED'
)
SELECT seq FROM wanted WHERE seq <> ALL (ARRAY(SELECT seq FROM reopened))
