-- The first parcels of one lane above its mark, which is locked: nothing there was ever taken. Locks none of
-- them: nobody but the holder of the lane can take or unpack them. Not ordered by the lane as well: the server
-- would sort all of it. {lane}, {mark}, {rows}.
(SELECT integration, seq, message_id, CAST(bytes AS SIGNED), due_at
 FROM outbox_parcel FORCE INDEX (PRIMARY)
 WHERE integration = {lane} AND seq > {mark}
 ORDER BY seq, message_id LIMIT {rows})
