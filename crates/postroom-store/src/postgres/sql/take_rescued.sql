-- Takes rescued deliveries: of each lane one claim, with no more messages than the number of their
-- rescues allows, so that the claim of a message that kills its relay is halved each time.
-- $1 payload limit (for `content.rs`, which reads them), $2 integrations, $3 a token for each, $4 rows
-- per integration, $5 worker, $6 relay, $7 rows over all, $8 bytes per claim,
-- $9 whether those are wanted that are handled alone, $10 whether what is taken goes to a queue:
-- nothing is alone there.
--
-- Like `take.sql` by an array of places, which keeps its limits under every plan. The innermost
-- limit bounds what is read where messages of the other kind come first.
WITH taken AS (
    UPDATE core_outbox.delivery
    SET claim = ($3::uuid[])[array_position($2::text[], integration::text)]
    WHERE ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM unnest($2::text[], $4::int[]) AS wanted (integration, quota)
        CROSS JOIN LATERAL (
            SELECT counted.ctid
            FROM (
                SELECT lost.ctid,
                       count(*) OVER (ROWS UNBOUNDED PRECEDING) AS place,
                       min(lost.together) OVER (ROWS UNBOUNDED PRECEDING) AS together,
                       sum(lost.bytes) OVER (ROWS UNBOUNDED PRECEDING) - lost.bytes AS bytes_before
                FROM (
                    SELECT d.ctid, d.bytes,
                           greatest(wanted.quota >> least(d.rescues, 31), 1) AS together
                    FROM core_outbox.delivery d
                    WHERE d.lane = core_outbox.lane_of(wanted.integration)
                      AND d.integration = wanted.integration
                      AND d.claim IS NULL AND d.state IN ('w', 'f') AND d.rescues > 0
                      AND d.due_at <= now()
                    ORDER BY d.due_at, d.seq
                    LIMIT wanted.quota
                    FOR UPDATE SKIP LOCKED
                ) AS lost
                WHERE (lost.together = 1 AND NOT $10::boolean) = $9::boolean
            ) AS counted
            WHERE counted.place <= counted.together AND counted.bytes_before < $8::bigint
        ) AS due
        LIMIT $7::bigint
    ))
    -- Caution, see `content.rs`: of 16 kB PostgreSQL makes 130 MB of text at most, and quickly.
    RETURNING message_id, rescues, due_at, claim, dispatch, (bytes > 16384)::int AS caution, lane,
              false AS is_fresh
),
held AS (
    -- As in `take.sql`.
    INSERT INTO core_outbox.claim (token, worker, since, relay, alone, ids, dispatched)
    SELECT claim, $5, now(), (SELECT id FROM core_outbox.relay WHERE id = $6 AND until >= now()),
           $9::boolean, array_agg(message_id), $10::boolean
    FROM taken
    GROUP BY claim
)
