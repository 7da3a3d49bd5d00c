-- What all claims on parcels name.
SELECT parcels FROM outbox_claim WHERE parcels IS NOT NULL
