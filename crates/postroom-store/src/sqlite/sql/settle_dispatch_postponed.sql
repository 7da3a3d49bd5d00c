-- Like `settle_postponed.sql`, by the number of a dispatch, which is over. ?1 how many dispatches were over
-- when this one began, ?2 id, ?3 due.
UPDATE outbox_delivery SET claim = NULL, due_at = ?3, since = ?3, dispatch = dispatch + 1
WHERE message_id = ?2 AND dispatch = ?1 AND state <> 'd'
  AND EXISTS (
      SELECT 1 FROM integration_outbox AS m
      WHERE m.id = outbox_delivery.message_id
        AND m.status = CASE outbox_delivery.state WHEN 'w' THEN 'PENDING' WHEN 'f' THEN 'FAILED' END
        AND m.integration_type = outbox_delivery.integration
        AND CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
            = outbox_delivery.due_at
  )
