-- A mark only rises. ?1 lane, ?2 the highest number that was taken.
INSERT INTO outbox_lane_cursor (integration, mark) VALUES (?1, ?2)
ON CONFLICT (integration) DO UPDATE SET mark = max(mark, excluded.mark)
