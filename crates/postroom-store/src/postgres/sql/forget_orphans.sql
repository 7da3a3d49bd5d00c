-- Removes deliveries whose message is deleted or was closed by hand. $1 seqs just claimed.
DELETE FROM core_outbox.delivery d
WHERE d.seq = ANY ($1)
  AND NOT EXISTS (
      SELECT FROM core_outbox.integration_outbox m
      WHERE m.id = d.message_id
        -- Opened again in the meantime: then it stays, and the claim's end frees it.
        AND m.status IN ('PENDING', 'FAILED')
  )
