-- Parcels without an open message, and those of messages that have a delivery. A change by hand that is still
-- to be followed is none of these.
SELECT p.integration, p.seq, p.message_id, CAST(p.bytes AS SIGNED), p.due_at
FROM outbox_parcel AS p FORCE INDEX (PRIMARY)
LEFT JOIN integration_outbox /*row*/ AS m FORCE INDEX (outbox_id)
    ON m.id = p.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
LEFT JOIN outbox_delivery AS d ON d.message_id = p.message_id
WHERE (m.id IS NULL OR d.message_id IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM outbox_pending_edit AS e WHERE e.message_id = p.message_id)
