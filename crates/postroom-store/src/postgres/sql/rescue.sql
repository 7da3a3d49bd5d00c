-- Frees what expired claims on deliveries hold, as the messages say by now. The claims are locked, by a
-- statement before this one (`expired.sql`). Waits for nobody: a delivery that is locked is being settled,
-- a message that is locked is being changed, and both are left for the next time, with their claim. Lock
-- order: claim, delivery, message. $1 attempts kept (for `note_attempts.sql`, which follows), $2 tokens, $3 a
-- fresh token for the attempts counted here. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside
-- the joins bound what is read.
WITH expired AS (
    SELECT c.token, c.worker, c.alone, c.dispatched,
           -- Until its relay's end, or until now if that left.
           greatest(extract(epoch FROM coalesce(
               (SELECT r.until FROM core_outbox.relay r WHERE r.id = c.relay), now()
           ) - c.since), 0) AS held_for,
           c.ids
    FROM core_outbox.claim c
    WHERE c.token = ANY ($2)
),
held AS (
    SELECT message_id, claim FROM core_outbox.delivery
    WHERE message_id = ANY (ARRAY(SELECT unnest(ids) FROM expired))
      AND claim = ANY (ARRAY(SELECT token FROM expired))
    FOR UPDATE SKIP LOCKED
),
there AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
),
said AS (
    SELECT id, status, due_at, integration_type FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT message_id FROM held))
    -- As strong as the update below: it must not wait either.
    FOR NO KEY UPDATE SKIP LOCKED
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = d.rescues + (NOT e.dispatched)::int,
        /*ledger: attempts = d.attempts + e.alone::int,
        last_error = CASE WHEN e.alone THEN 'lost with its relay: the claim of ' || e.worker
                     || ' expired while it handled this message alone' ELSE d.last_error END, */
        -- What was changed by hand while it was claimed. A message that was deleted changes
        -- nothing.
        due_at = coalesce(said.due_at, d.due_at),
        since = CASE WHEN said.due_at <> d.due_at THEN said.due_at ELSE d.since END,
        integration = coalesce(said.integration_type, d.integration),
        lane = core_outbox.lane_of(coalesce(said.integration_type, d.integration)),
        state = CASE WHEN e.alone AND said.status = 'PENDING' THEN 'f'
                     WHEN core_outbox.is_waiting(said.status) THEN core_outbox.state_of(said.status)
                     ELSE d.state END
    FROM held
    JOIN expired e ON e.token = held.claim
    LEFT JOIN there ON there.id = held.message_id
    LEFT JOIN said ON said.id = held.message_id
    WHERE d.message_id = held.message_id
      AND d.message_id = ANY (ARRAY(SELECT message_id FROM held))
      AND (said.id IS NOT NULL OR there.id IS NULL)
    RETURNING d.message_id, e.token, e.alone, e.worker, e.held_for
),
ended AS (
    -- Of a claim that holds more than could be freed, the rest is left for the next time.
    DELETE FROM core_outbox.claim
    WHERE token = ANY (ARRAY(
        SELECT e.token
        FROM expired e
        LEFT JOIN (
            SELECT claim, count(*) AS deliveries
            FROM core_outbox.delivery
            WHERE message_id = ANY (ARRAY(SELECT unnest(ids) FROM expired))
              AND claim = ANY (ARRAY(SELECT token FROM expired))
            GROUP BY claim
        ) AS held ON held.claim = e.token
        LEFT JOIN (
            SELECT token, count(*) AS deliveries FROM freed GROUP BY token
        ) AS done ON done.token = e.token
        WHERE coalesce(held.deliveries, 0) = coalesce(done.deliveries, 0)
    ))
    RETURNING 1
),
tried AS (
    UPDATE core_outbox.integration_outbox m
    SET attempts = least(m.attempts::bigint + 1, 2147483647)::int, status = 'FAILED',
        updated_at = now(), settled = $3,
        -- This loss is an attempt. Those before it stay in the delivery, and count with the outcome.
        /*foreign: rescues = 0, */
        last_error = 'lost with its relay: the claim of ' || freed.worker
                     || ' expired while it handled this message alone'
    FROM freed
    WHERE m.id = freed.message_id AND freed.alone
      AND m.id = ANY (ARRAY(SELECT message_id FROM freed WHERE alone))
      -- One that was closed by hand meanwhile stays closed.
      AND m.status IN ('PENDING', 'FAILED')
    RETURNING m.id AS message_id, (freed.held_for * 1000)::bigint AS took_ms, 'lost' AS outcome,
              'lost with its relay: the claim of ' || freed.worker
                  || ' expired while it handled this message alone' AS error
),
