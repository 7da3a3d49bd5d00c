-- Frees the deliveries in `held`: due after their delay where the message still says what they say,
-- or else as the message says by now, as `follow_released.sql` does. The message is marked with a
-- fresh token each time, so that no earlier settlement can pass for this one. $2 seqs, $3 delays in seconds.
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    FOR NO KEY UPDATE
),
next AS (
    SELECT held.seq, held.dispatch, said.id, said.status, said.due_at, said.integration_type,
           CASE WHEN said.status = CASE WHEN held.failed THEN 'FAILED' ELSE 'PENDING' END
                     AND said.due_at = held.due_at AND said.integration_type = held.integration
                THEN now() + make_interval(secs => put_off.delay)
           END AS put_off
    FROM unnest($2::bigint[], $3::float8[]) AS put_off (seq, delay)
    JOIN held ON held.seq = put_off.seq
    LEFT JOIN said ON said.id = held.message_id
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, dispatch = next.dispatch,
        due_at = coalesce(next.put_off, next.due_at, d.due_at),
        integration = coalesce(next.integration_type, d.integration),
        failed = coalesce(next.status = 'FAILED', d.failed),
        dead = coalesce(next.status = 'DEAD', d.dead)
    FROM next
    WHERE d.seq = next.seq AND d.seq = ANY ($2)
    RETURNING d.seq
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET due_at = next.put_off, updated_at = now(), settled = gen_random_uuid()
    FROM next
    WHERE m.id = next.id AND m.id = ANY (ARRAY(SELECT message_id FROM held))
      AND next.put_off IS NOT NULL
)
SELECT seq FROM freed
