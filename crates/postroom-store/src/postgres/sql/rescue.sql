-- Frees what expired claims hold, as the messages say by now. Waits for nobody: a delivery that is
-- locked is being settled, and is left for the next time, with its claim. Lock order: claim,
-- delivery, message. $1 attempts kept (for `note_attempts.sql`, which follows), $2 claims at most,
-- $3 a fresh token for the attempts counted here. Runs under JOIN_BY_HASH of `transaction.rs`; the
-- arrays beside the joins bound what is read.
WITH expired AS (
    SELECT token, worker, alone, greatest(extract(epoch FROM until - since), 0) AS held_for,
           -- A relay older than the column names nothing: then everything is looked through.
           CASE WHEN seqs <> '{}' THEN seqs
                ELSE ARRAY(SELECT d.seq FROM core_outbox.delivery d WHERE d.claim = token) END
               AS seqs
    FROM core_outbox.claim
    WHERE until < now()
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
freed AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, rescues = d.rescues + 1,
        -- What was changed by hand while it was claimed. An aggregate, so that a message that was
        -- deleted changes nothing.
        (due_at, integration, failed, dead) = (
            SELECT coalesce(max(o.due_at), d.due_at),
                   coalesce(max(o.integration_type), d.integration),
                   coalesce(bool_or(o.status = 'FAILED' OR e.alone AND o.status = 'PENDING'),
                            d.failed),
                   coalesce(bool_or(o.status = 'DEAD'), d.dead)
            FROM core_outbox.integration_outbox o
            WHERE o.id = d.message_id
        )
    FROM expired e
    WHERE d.claim = e.token
      AND d.ctid = ANY (ARRAY(
          SELECT held.ctid FROM core_outbox.delivery held
          WHERE held.seq = ANY (ARRAY(SELECT unnest(seqs) FROM expired))
            AND held.claim = ANY (ARRAY(SELECT token FROM expired))
          FOR UPDATE SKIP LOCKED
      ))
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
