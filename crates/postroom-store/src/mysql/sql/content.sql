-- Reads the messages of what was taken, as far as they are open. {columns}, {seqs}. Whoever asked compares
-- the ids, and what else a message may say by now: that it is due later, or goes elsewhere.
SELECT {columns}, m.due_at <= UTC_TIMESTAMP(6), d.message_id IS NOT NULL
FROM integration_outbox /*row*/ AS m FORCE INDEX (PRIMARY)
LEFT JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.message_id = m.id
WHERE m.seq IN ({seqs}) AND m.status IN ('PENDING', 'FAILED')
