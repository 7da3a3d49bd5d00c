
-- A delivery that is there outranks a parcel.
ON DUPLICATE KEY UPDATE seq = outbox_delivery.seq
