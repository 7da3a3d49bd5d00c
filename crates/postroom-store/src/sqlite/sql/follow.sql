-- Makes deliveries that nobody holds say what their messages say. They were changed while they were
-- claimed, when the trigger left them alone, or while there were no triggers. A status that closes the
-- message leaves the state as it is: `forget_closed.sql` removes such deliveries. ?1 ids.
UPDATE outbox_delivery
SET seq = m.seq, integration = m.integration_type,
    due_at = CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
    since = CASE WHEN outbox_delivery.due_at
                      = CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
                 THEN outbox_delivery.since
                 ELSE CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER) END,
    state = CASE m.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd'
                          ELSE outbox_delivery.state END
FROM integration_outbox AS m
WHERE outbox_delivery.message_id IN (SELECT value FROM json_each(?1))
  AND outbox_delivery.claim IS NULL AND m.id = outbox_delivery.message_id
