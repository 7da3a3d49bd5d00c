-- Puts right deliveries whose message is deleted or was closed by hand: dead ones are marked so,
-- the others go. $1 seqs just claimed.
WITH buried AS (
    UPDATE core_outbox.delivery d
    SET claim = NULL, failed = false, dead = true
    FROM core_outbox.integration_outbox m
    WHERE d.seq = ANY ($1) AND m.id = d.message_id AND m.status = 'DEAD'
)
DELETE FROM core_outbox.delivery d
WHERE d.seq = ANY ($1)
  AND NOT EXISTS (
      SELECT FROM core_outbox.integration_outbox m
      WHERE m.id = d.message_id
        -- Opened again in the meantime: then it stays, and the claim's end frees it.
        AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  )
