-- Messages that several parcels name.
SELECT message_id FROM outbox_parcel GROUP BY message_id HAVING COUNT(*) > 1
