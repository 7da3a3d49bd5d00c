-- Gives such messages numbers of their own. One keeps its number: the one that has a delivery, or else
-- the first. $1 numbers. Runs under JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins
-- bound what is read.
UPDATE core_outbox.integration_outbox m
SET seq = DEFAULT
FROM (
    SELECT o.id, row_number() OVER (PARTITION BY o.seq ORDER BY d.seq, o.id) AS place
    FROM core_outbox.integration_outbox o
    LEFT JOIN core_outbox.delivery d
        ON d.seq = o.seq AND d.message_id = o.id AND d.seq = ANY ($1)
    WHERE o.seq = ANY ($1)
) AS sharing
WHERE m.id = sharing.id AND sharing.place > 1 AND m.seq = ANY ($1)
RETURNING m.seq
