-- Failed attempts of messages in parcels: from here on they have a delivery, due again or dead. What was
-- taken from this claim and completed by somebody else stays as it is.
-- `mark_failed.sql` and `note_attempts.sql` follow. $1 attempts kept, $2 token, $3 ids, $4 delays in
-- seconds, $5 errors, $6 dead or not, $7 the attempts' outcomes, null where nothing was tried,
-- $8 milliseconds they took. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins
-- bound what is read.
WITH mine AS MATERIALIZED (
    SELECT lanes, numbers, messages FROM core_outbox.claim WHERE token = $2 FOR UPDATE
),
held AS MATERIALIZED (
    SELECT p.refs
    FROM mine
    CROSS JOIN LATERAL unnest(mine.lanes, mine.numbers) AS held (lane, number)
    CROSS JOIN LATERAL (
        SELECT refs FROM core_outbox.parcel o
        WHERE o.lane = held.lane AND o.number = held.number
        OFFSET 0
    ) AS p
),
verdict AS (
    SELECT * FROM unnest($3::/*id*/uuid[], $4::float8[], $5::text[], $6::boolean[], $7::text[],
                         $8::bigint[])
        AS v (id, delay, error, dead, outcome, took_ms)
),
made AS (
    INSERT INTO core_outbox.delivery
        (message_id, seq, due_at, since, lane, bytes, state, integration
         /*ledger: , attempts, last_error */)
    SELECT m.id, m.seq,
           CASE WHEN v.dead THEN m.due_at ELSE now() + make_interval(secs => v.delay) END,
           m.due_at, core_outbox.lane_of(m.integration_type), core_outbox.content_bytes(m.payload, m.headers),
           CASE WHEN v.dead THEN 'd'::"char" ELSE 'f'::"char" END, m.integration_type
           /*ledger: , (v.outcome IS NOT NULL)::int, v.error */
    FROM verdict v
    JOIN core_outbox.integration_outbox m ON m.id = v.id
    WHERE m.id = ANY ($3) AND m.id IN (SELECT unnest(refs) FROM held)
      AND NOT (m.status = 'SENT' AND m.settled IS NOT NULL AND m.settled <> $2)
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id, due_at
),
freed AS MATERIALIZED (
    SELECT made.message_id, made.due_at, v.error, v.dead, v.outcome, v.took_ms,
           NULL::int AS failed_before
    FROM made JOIN verdict v ON v.id = made.message_id
),
