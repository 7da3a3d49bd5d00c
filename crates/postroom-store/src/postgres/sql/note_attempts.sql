-- Keeps the failed attempts in `tried` (message_id, took_ms, outcome, error) as history, and
-- forgets the oldest. Follows the statements that fail messages. $1 attempts kept.
--
-- The numbers are safe: whoever writes them holds the message's delivery. If they ever were not,
-- history would rather miss a line than stop an outcome.
noted AS (
    INSERT INTO core_outbox.attempt (message_id, number, at, took_ms, outcome, error)
    SELECT t.message_id,
           coalesce((SELECT max(a.number) FROM core_outbox.attempt a
                     WHERE a.message_id = t.message_id), 0) + 1,
           now(), t.took_ms, t.outcome, t.error
    FROM tried t
    WHERE t.outcome IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING message_id, number
),
forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE ctid = ANY (ARRAY(
        SELECT old.ctid
        FROM noted
        -- Lateral and not flattened: a look-up by key per message under every plan.
        CROSS JOIN LATERAL (
            SELECT a.ctid FROM core_outbox.attempt a
            WHERE a.message_id = noted.message_id AND a.number <= noted.number - $1
            OFFSET 0
        ) AS old
    ))
)
