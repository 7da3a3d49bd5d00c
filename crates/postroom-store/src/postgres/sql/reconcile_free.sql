-- Frees such deliveries, as the messages say by now. Waits for nobody: a message that is locked is
-- being changed, and its delivery is left for the next time. Lock order: delivery, message.
-- $1 ids, $2 their claims: a token is never used twice, so one that was taken again meanwhile is
-- left alone. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what
-- is read.
WITH held AS (
    SELECT d.message_id
    FROM core_outbox.delivery d
    JOIN unnest($1::/*id*/uuid[], $2::uuid[]) AS stray (id, claim)
        ON d.message_id = stray.id AND d.claim = stray.claim
    WHERE d.message_id = ANY ($1)
    FOR UPDATE OF d SKIP LOCKED
),
there AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
),
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR SHARE SKIP LOCKED
)
UPDATE core_outbox.delivery d
SET claim = NULL,
    -- What was changed by hand while it was claimed. A message that was deleted changes nothing.
    due_at = coalesce(said.due_at, d.due_at),
    since = CASE WHEN said.due_at <> d.due_at THEN said.due_at ELSE d.since END,
    integration = coalesce(said.integration_type, d.integration),
    lane = core_outbox.lane_of(coalesce(said.integration_type, d.integration)),
    state = CASE WHEN core_outbox.is_waiting(said.status)
                 THEN core_outbox.state_of(said.status) ELSE d.state END
FROM held
LEFT JOIN there ON there.id = held.message_id
LEFT JOIN said ON said.id = held.message_id
WHERE d.message_id = held.message_id AND d.message_id = ANY ($1)
  AND (said.id IS NOT NULL OR there.id IS NULL)
RETURNING d.message_id
