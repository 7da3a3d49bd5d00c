-- Forgets the attempts of messages that were deleted by hand. Looks at some messages with attempts
-- at a time, by a loose scan of the key, and answers where to go on; nothing at the end.
-- $1 after this message id, $2 messages at most.
WITH RECURSIVE seen AS (
    (SELECT message_id, 1 AS n FROM core_outbox.attempt
     WHERE message_id > $1
     ORDER BY message_id LIMIT 1)
    UNION ALL
    SELECT (SELECT a.message_id FROM core_outbox.attempt a
            WHERE a.message_id > seen.message_id
            ORDER BY a.message_id LIMIT 1),
           seen.n + 1
    FROM seen
    WHERE seen.message_id IS NOT NULL AND seen.n < $2
),
forgotten AS (
    DELETE FROM core_outbox.attempt
    WHERE message_id = ANY (ARRAY(
        SELECT seen.message_id FROM seen
        WHERE NOT EXISTS (
            SELECT FROM core_outbox.integration_outbox m WHERE m.id = seen.message_id
        )
    ))
)
SELECT message_id FROM seen ORDER BY n DESC LIMIT 1
