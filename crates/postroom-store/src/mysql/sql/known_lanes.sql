-- Which of these lanes have their cursor. {lanes}.
SELECT integration FROM outbox_lane_cursor FORCE INDEX (PRIMARY) WHERE integration IN ({lanes})
