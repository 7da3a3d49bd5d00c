-- Remembers the events of messages that are about to be deleted. Replays were delivered again on purpose.
-- Nor is what was not delivered for that, {why}. {event}, {remembered} in microseconds after their delivery, {seqs}.
INSERT INTO outbox_remembered (event, until)
SELECT {event}, COALESCE(m.sent_at, UTC_TIMESTAMP(6)) + INTERVAL {remembered} MICROSECOND
FROM integration_outbox /*row*/ AS m FORCE INDEX (PRIMARY)
WHERE m.seq IN ({seqs}) AND NOT m.last_error <=> '{why}'
  AND (m.headers IS NULL OR LOCATE('"postroom-replay-of"', m.headers) = 0)
ON DUPLICATE KEY UPDATE until = GREATEST(until, VALUES(until))
