-- The claims on parcels, and what they name. There are as many as batches in flight.
SELECT token, parcels FROM outbox_claim FORCE INDEX (outbox_claim_parcels) WHERE lowest IS NOT NULL
