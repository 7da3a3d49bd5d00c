-- The first parcels of one lane up to its mark: those that somebody holds, and those that committed late or
-- whose number came again. From the beginning of the lane: nothing can hide below the mark. {lane}, {mark},
-- {rows}: as many as are wanted, and as many as claims name here.
(SELECT integration, seq, message_id, CAST(bytes AS SIGNED), due_at
 FROM outbox_parcel FORCE INDEX (PRIMARY)
 WHERE integration = {lane} AND seq <= {mark}
 ORDER BY seq, message_id LIMIT {rows})
