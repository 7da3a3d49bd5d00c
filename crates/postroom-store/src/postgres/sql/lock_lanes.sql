-- Locks lanes before anything is looked at: a statement that waited for a lock still reads its old
-- snapshot. $1 integrations. In order, so that nobody waits in a circle.
SELECT lane FROM core_outbox.lane_cursor
WHERE lane = ANY (ARRAY(SELECT core_outbox.lane_of(unnest($1::text[]))))
ORDER BY lane
FOR UPDATE
