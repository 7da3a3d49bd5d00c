-- Id of the message.
SELECT a.seq, MAX(a.number) FROM integration_outbox AS m FORCE INDEX (outbox_id)
JOIN outbox_attempt AS a FORCE INDEX (PRIMARY) ON a.seq = m.seq
WHERE m.id = ? GROUP BY a.seq
