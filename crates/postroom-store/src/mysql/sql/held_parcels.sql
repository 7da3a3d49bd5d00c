-- Which of these parcels are there, and whether a delivery names the same message: it outranks the parcel.
-- Others of the same number may be among them. Locks nothing. {parcels} is a condition.
SELECT p.integration, p.seq, p.message_id, CAST(p.bytes AS SIGNED), p.due_at, d.message_id IS NOT NULL
FROM outbox_parcel AS p FORCE INDEX (PRIMARY)
LEFT JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.message_id = p.message_id
WHERE {parcels}
