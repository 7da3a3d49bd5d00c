-- Makes the cursors of lanes, unless somebody else just has. {rows}.
INSERT INTO outbox_lane_cursor (integration) VALUES {rows} ON DUPLICATE KEY UPDATE turn = turn
