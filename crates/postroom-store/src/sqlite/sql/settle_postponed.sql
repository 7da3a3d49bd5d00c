-- Back to the lane, due later. Only where the message says what the delivery says: nobody has changed it.
-- ?1 the claim's token, ?2 id, ?3 due.
UPDATE outbox_delivery SET claim = NULL, due_at = ?3, since = ?3
WHERE message_id = ?2 AND claim = ?1
  AND EXISTS (
      SELECT 1 FROM integration_outbox AS m
      WHERE m.id = outbox_delivery.message_id
        AND m.status = CASE outbox_delivery.state WHEN 'w' THEN 'PENDING' WHEN 'f' THEN 'FAILED' END
        AND m.integration_type = outbox_delivery.integration
        AND CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
            = outbox_delivery.due_at
  )
