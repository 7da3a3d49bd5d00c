-- Back to the queue, untouched. $1 token, $2 seqs.
UPDATE core_outbox.delivery
SET claim = NULL
WHERE seq = ANY ($2) AND claim = $1
RETURNING seq
