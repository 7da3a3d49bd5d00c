-- Whether there is anything in one lane: a delivery that is due, a parcel, a change by hand. Locks nothing:
-- an idle relay leaves everybody alone. Deliveries are looked for by equality: where MySQL took the table for
-- empty, it read the whole index for a range of due times. {place} of the lane in the list, {queue}, {lane}.
SELECT {place}, COALESCE((
           SELECT due_at FROM outbox_delivery FORCE INDEX (outbox_delivery_queue)
           WHERE queue = {queue} AND integration = {lane}
           ORDER BY due_at LIMIT 1
       ) <= UTC_TIMESTAMP(6), FALSE) AS is_due,
       EXISTS (
           SELECT 1 FROM outbox_parcel FORCE INDEX (PRIMARY) WHERE integration = {lane}
       ) AS has_parcels,
       EXISTS (
           SELECT 1 FROM outbox_pending_edit FORCE INDEX (PRIMARY) WHERE integration = {lane}
       ) AS has_edits
