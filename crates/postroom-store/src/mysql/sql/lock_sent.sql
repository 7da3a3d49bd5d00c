-- A message that was sent. Set to SENT by hand during an attempt, it is still on its way. Number, id.
SELECT source_event_id, source_stream_id, integration_type FROM integration_outbox AS m
WHERE seq = ? AND id = ? AND status = 'SENT'
  AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = m.id)
FOR UPDATE
