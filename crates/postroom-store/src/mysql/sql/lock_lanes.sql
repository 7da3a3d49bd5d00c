-- Locks lanes before anything is looked at, and says how far each was taken. In order, so that nobody waits
-- in a circle. {lanes}.
SELECT integration, mark FROM outbox_lane_cursor FORCE INDEX (PRIMARY)
WHERE integration IN ({lanes}) ORDER BY integration FOR UPDATE
