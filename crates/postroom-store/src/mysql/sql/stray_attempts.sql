-- The attempts of messages that were deleted by hand, or whose number another has. {seqs}.
SELECT a.seq, a.number FROM outbox_attempt AS a FORCE INDEX (PRIMARY)
LEFT JOIN integration_outbox /*row*/ AS m FORCE INDEX (PRIMARY) ON m.seq = a.seq AND m.id = a.message_id
WHERE a.seq IN ({seqs}) AND m.seq IS NULL
