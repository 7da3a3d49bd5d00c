-- Deliveries that nobody holds and that say something else than their open message. A change by hand that is
-- still to be followed is none of these. {after} which id, {rows}.
SELECT d.message_id, d.seq FROM outbox_delivery AS d FORCE INDEX (PRIMARY)
JOIN integration_outbox /*row*/ AS m ON m.id = d.message_id
WHERE d.message_id > {after} AND d.claim IS NULL AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND (m.due_at <> d.due_at OR m.integration_type <> d.integration OR m.seq <> d.seq
       OR d.state <> CASE m.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END)
  AND NOT EXISTS (SELECT 1 FROM outbox_pending_edit AS e WHERE e.message_id = d.message_id)
ORDER BY d.message_id LIMIT {rows}
