-- What a claim holds: parcels, or null for deliveries. ?1 token.
SELECT parcels FROM outbox_claim WHERE token = ?1
