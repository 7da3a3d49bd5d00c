-- Gives such messages numbers of their own. One keeps its number: the one that has a delivery, or else
-- the first. $1 numbers. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins
-- bound what is read. Those that somebody is changing at this moment are left for the next time.
WITH sharing AS (
    SELECT o.id, row_number() OVER (PARTITION BY o.seq ORDER BY d.seq, o.id) AS place
    FROM core_outbox.integration_outbox o
    LEFT JOIN core_outbox.delivery d
        ON d.seq = o.seq AND d.message_id = o.id AND d.seq = ANY ($1)
    WHERE o.seq = ANY ($1)
),
free AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT id FROM sharing WHERE place > 1)) AND seq = ANY ($1)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE core_outbox.integration_outbox m
SET seq = DEFAULT
FROM free
WHERE m.id = free.id AND m.seq = ANY ($1)
RETURNING m.seq
