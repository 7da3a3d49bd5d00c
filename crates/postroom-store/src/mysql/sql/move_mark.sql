-- Notes that parcels of a lane were taken, up to this number, or unpacked. {lane}, {mark}.
UPDATE outbox_lane_cursor FORCE INDEX (PRIMARY)
SET mark = GREATEST(mark, {mark}), turn = turn + 1 WHERE integration = {lane}
