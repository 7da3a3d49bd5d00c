-- Which of these messages are of events that were delivered before. {event}, {seqs}. One with an outcome on
-- record was opened again by hand: whoever did that means it.
SELECT m.seq
FROM integration_outbox /*row*/ AS m FORCE INDEX (PRIMARY)
JOIN outbox_remembered AS r FORCE INDEX (PRIMARY) ON r.event = {event}
WHERE m.seq IN ({seqs}) AND m.status IN ('PENDING', 'FAILED') AND m.settled IS NULL
  AND r.until > UTC_TIMESTAMP(6)
  AND (m.headers IS NULL OR LOCATE('"postroom-replay-of"', m.headers) = 0)
