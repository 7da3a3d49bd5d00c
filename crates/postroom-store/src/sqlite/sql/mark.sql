-- ?1 lane.
SELECT mark FROM outbox_lane_cursor WHERE integration = ?1
