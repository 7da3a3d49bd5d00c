-- Deliveries that nobody holds, without an open message. A change by hand that is still to be followed is none
-- of these. {after} which id, {rows}.
SELECT d.message_id, d.seq FROM outbox_delivery AS d FORCE INDEX (PRIMARY)
LEFT JOIN integration_outbox /*row*/ AS m
    ON m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
WHERE d.message_id > {after} AND d.claim IS NULL AND m.id IS NULL
  AND NOT EXISTS (SELECT 1 FROM outbox_pending_edit AS e WHERE e.message_id = d.message_id)
ORDER BY d.message_id LIMIT {rows}
