-- Messages of parcels go back to their lane, due later; or, where they were changed by hand meanwhile, as
-- they say by now. The message is marked with a fresh token each time, so that no earlier settlement can
-- pass for this one. Follows `held_parcels.sql`. $1 token, $2 ids, $3 delays in seconds. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
said AS MATERIALIZED (
    SELECT m.id, m.seq, m.due_at, m.integration_type, m.status,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes,
           core_outbox.lane_of(m.integration_type) AS lane
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY ($2) AND m.id IN (SELECT unnest(refs) FROM held)
    FOR NO KEY UPDATE
),
next AS MATERIALIZED (
    SELECT said.*,
           CASE WHEN said.status = 'PENDING' AND said.due_at <= clock_timestamp()
                     AND said.lane = ANY (mine.lanes)
                THEN now() + make_interval(secs => v.delay)
           END AS put_off
    FROM unnest($2::/*id*/uuid[], $3::float8[]) AS v (id, delay)
    JOIN said ON said.id = v.id
    CROSS JOIN mine
),
made AS (
    INSERT INTO core_outbox.delivery
        (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT id, seq, coalesce(put_off, due_at), coalesce(put_off, due_at), lane, bytes, core_outbox.state_of(status),
           integration_type
    FROM next
    WHERE core_outbox.is_waiting(status)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET due_at = next.put_off, updated_at = now(), settled = gen_random_uuid()
    FROM next
    WHERE m.id = next.id AND m.id = ANY ($2) AND next.put_off IS NOT NULL
      AND m.id = ANY (ARRAY(SELECT message_id FROM made))
)
SELECT message_id FROM made
UNION ALL
SELECT id FROM next WHERE NOT core_outbox.is_waiting(status)
