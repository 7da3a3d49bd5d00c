-- Frees the deliveries in `held`, as their messages say by now. Follows the statements that release.
-- $2 ids.
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR SHARE
)
UPDATE core_outbox.delivery d
SET claim = NULL, dispatch = held.dispatch,
    due_at = coalesce(said.due_at, d.due_at),
    since = CASE WHEN said.due_at <> d.due_at THEN said.due_at ELSE d.since END,
    integration = coalesce(said.integration_type, d.integration),
    lane = core_outbox.lane_of(coalesce(said.integration_type, d.integration)),
    -- Closed by hand meanwhile: what takes it next finds that out.
    state = CASE WHEN core_outbox.is_waiting(said.status)
                 THEN core_outbox.state_of(said.status) ELSE d.state END
FROM held LEFT JOIN said ON said.id = held.message_id
WHERE d.message_id = held.message_id AND d.message_id = ANY ($2)
RETURNING d.message_id
