-- Removes such deliveries, if they still are. $1 seqs.
DELETE FROM core_outbox.delivery d
WHERE d.seq = ANY ($1) AND d.claim IS NULL
  AND NOT EXISTS (
      SELECT FROM core_outbox.integration_outbox m
      WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  )
RETURNING d.seq
