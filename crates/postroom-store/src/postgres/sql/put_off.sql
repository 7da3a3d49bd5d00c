-- Frees the deliveries in `held`: due after their delay where the message still says what they say,
-- or else as the message says by now, as `follow_released.sql` does. The message is marked with a
-- fresh token each time, so that no earlier settlement can pass for this one. $2 ids, $3 delays in seconds.
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR NO KEY UPDATE
),
next AS (
    SELECT held.message_id, held.dispatch, said.id, said.status, said.due_at, said.integration_type,
           CASE WHEN core_outbox.state_of(said.status) = held.state
                     AND said.due_at = held.due_at AND said.integration_type = held.integration
                THEN now() + make_interval(secs => put_off.delay)
           END AS put_off
    FROM unnest($2::/*id*/uuid[], $3::float8[]) AS put_off (id, delay)
    JOIN held ON held.message_id = put_off.id
    LEFT JOIN said ON said.id = held.message_id
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, dispatch = next.dispatch,
        due_at = coalesce(next.put_off, next.due_at, d.due_at),
        since = CASE WHEN next.put_off IS NOT NULL THEN next.put_off
                     WHEN next.due_at <> d.due_at THEN next.due_at
                     ELSE d.since END,
        integration = coalesce(next.integration_type, d.integration),
        lane = core_outbox.lane_of(coalesce(next.integration_type, d.integration)),
        state = CASE WHEN core_outbox.is_waiting(next.status)
                     THEN core_outbox.state_of(next.status) ELSE d.state END
    FROM next
    WHERE d.message_id = next.message_id AND d.message_id = ANY ($2)
    RETURNING d.message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET due_at = next.put_off, updated_at = now(), settled = gen_random_uuid()
    FROM next
    WHERE m.id = next.id AND m.id = ANY (ARRAY(SELECT message_id FROM held))
      AND next.put_off IS NOT NULL
)
SELECT message_id FROM freed
