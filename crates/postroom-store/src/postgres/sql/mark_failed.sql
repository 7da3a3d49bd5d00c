-- Marks the messages of deliveries that were `freed`, and passes on what was `tried`. Follows the
-- statements that free them. $2 token.
tried AS (
    UPDATE core_outbox.integration_outbox m
    SET status = CASE WHEN freed.dead THEN 'DEAD' ELSE 'FAILED' END,
        -- A count set by hand to the end of its type must not stop everyone else's outcome.
        attempts = least(
            CASE WHEN freed.failed_before IS NULL
                 THEN m.attempts::bigint + (freed.outcome IS NOT NULL)::int
                 -- An external worker may have counted this attempt in the row itself.
                 ELSE greatest(m.attempts,
                               freed.failed_before::bigint + (freed.outcome IS NOT NULL)::int)
            END, 2147483647)::int,
        due_at = freed.due_at,
        last_error = freed.error,
        updated_at = now(),
        settled = $2
    FROM freed
    WHERE m.id = freed.message_id AND m.id = ANY (ARRAY(SELECT message_id FROM freed))
    RETURNING freed.message_id, freed.took_ms, freed.outcome, freed.error
),
