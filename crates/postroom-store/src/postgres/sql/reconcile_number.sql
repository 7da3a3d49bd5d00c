-- Gives such messages numbers of their own. One keeps its number: the first. $1 numbers. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins
-- bound what is read. Those that somebody is changing at this moment are left for the next time.
WITH sharing AS (
    SELECT o.id, row_number() OVER (PARTITION BY o.seq ORDER BY o.id) AS place
    FROM core_outbox.integration_outbox o
    WHERE o.seq = ANY ($1)
),
free AS (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT id FROM sharing WHERE place > 1)) AND seq = ANY ($1)
    FOR NO KEY UPDATE SKIP LOCKED
)
, numbered AS (
    UPDATE core_outbox.integration_outbox m
    SET seq = DEFAULT
    FROM free
    WHERE m.id = free.id AND m.seq = ANY ($1)
    RETURNING m.id, m.seq
),
followed AS (
    UPDATE core_outbox.delivery d SET seq = numbered.seq
    FROM numbered
    WHERE d.message_id = numbered.id AND d.message_id = ANY (ARRAY(SELECT id FROM free))
)
SELECT id FROM numbered
