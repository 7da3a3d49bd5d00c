-- Sent rows again, in a table that somebody else made: they get deliveries that say so, and `mark_redriven.sql` opens
-- them next. ?1 ids, ?2 due, ?3 dispatches that may have been.
INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration, dispatch, is_replay)
SELECT m.id, m.seq, ?2, ?2, 'w', m.integration_type, ?3, 1
FROM json_each(?1) AS named
CROSS JOIN integration_outbox AS m ON m.id = named.value
WHERE m.status = 'SENT'
  AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = m.id)
  -- Marked SENT by hand during an attempt: that attempt decides.
  AND NOT EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                  CROSS JOIN outbox_parcel AS p
                      ON p.integration = l.integration AND p.seq = m.seq AND p.message_id = m.id)
RETURNING message_id
