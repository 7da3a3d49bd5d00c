-- Dead deliveries whose message was deleted by hand. {seqs}.
SELECT d.message_id FROM outbox_delivery AS d FORCE INDEX (outbox_delivery_number)
LEFT JOIN integration_outbox /*row*/ AS m FORCE INDEX (outbox_id) ON m.id = d.message_id
WHERE d.seq IN ({seqs}) AND d.queue = 3 AND m.seq IS NULL
