-- Frees what expired claims hold, as the messages say by now. Waits for nobody: a delivery that is
-- locked is being settled, a message that is locked is being changed, and both are left for the
-- next time, with their claim. Lock order: claim, delivery, message. $1 attempts kept (for
-- `note_attempts.sql`, which follows), $2 claims at most, $3 a fresh token for the attempts counted
-- here, $4 the claims that the caller holds itself. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH expired AS (
    SELECT c.token, c.worker, c.alone, c.dispatched,
           greatest(extract(epoch FROM c.until - c.since), 0) AS held_for,
           -- A relay older than the column names nothing: then everything is looked through. A lease
           -- names nothing either, and holds nothing itself.
           CASE WHEN c.seqs <> '{}' OR c.dispatched THEN c.seqs
                ELSE ARRAY(SELECT d.seq FROM core_outbox.delivery d WHERE d.claim = c.token) END
               AS seqs
    FROM core_outbox.claim c
    WHERE c.until < now() AND c.token <> ALL ($4::uuid[])
      -- Kept by a lease. There are as many as relays, and an array of them is the same under every
      -- plan.
      AND (c.lease = ANY (ARRAY(
          SELECT kept.token FROM core_outbox.claim kept
          WHERE kept.dispatched AND kept.lease IS NULL AND kept.until >= now()
      ))) IS NOT TRUE
    LIMIT $2
    FOR UPDATE OF c SKIP LOCKED
),
held AS (
    SELECT seq, message_id, claim FROM core_outbox.delivery
    WHERE seq = ANY (ARRAY(SELECT unnest(seqs) FROM expired))
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
        -- What was changed by hand while it was claimed. A message that was deleted changes
        -- nothing.
        due_at = coalesce(said.due_at, d.due_at),
        integration = coalesce(said.integration_type, d.integration),
        failed = coalesce(said.status = 'FAILED' OR e.alone AND said.status = 'PENDING', d.failed),
        dead = coalesce(said.status = 'DEAD', d.dead)
    FROM held
    JOIN expired e ON e.token = held.claim
    LEFT JOIN there ON there.id = held.message_id
    LEFT JOIN said ON said.id = held.message_id
    WHERE d.seq = held.seq AND d.seq = ANY (ARRAY(SELECT seq FROM held))
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
            WHERE seq = ANY (ARRAY(SELECT unnest(seqs) FROM expired))
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
        last_error = 'lost with its relay: the claim of ' || freed.worker
                     || ' expired while it handled this message alone'
    FROM freed
    WHERE m.id = freed.message_id AND freed.alone
      AND m.id = ANY (ARRAY(SELECT message_id FROM freed WHERE alone))
      -- One that was closed by hand meanwhile stays closed.
      AND m.status IN ('PENDING', 'FAILED')
    RETURNING m.id AS message_id, (freed.held_for * 1000)::bigint AS took_ms, 'lost' AS outcome,
              m.last_error AS error
),
