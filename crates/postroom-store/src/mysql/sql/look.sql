-- Whether there is anything in one lane: a delivery that is due, a parcel, a change by hand. Locks nothing:
-- an idle relay leaves everybody alone. {place} of the lane in the list, {queue}, {lane}.
SELECT {place}, EXISTS (
           SELECT 1 FROM outbox_delivery FORCE INDEX (outbox_delivery_queue)
           WHERE queue = {queue} AND integration = {lane} AND due_at <= UTC_TIMESTAMP(6)
       ) AS is_due,
       EXISTS (
           SELECT 1 FROM outbox_parcel FORCE INDEX (PRIMARY) WHERE integration = {lane}
       ) AS has_parcels,
       EXISTS (
           SELECT 1 FROM outbox_pending_edit FORCE INDEX (PRIMARY) WHERE integration = {lane}
       ) AS has_edits
