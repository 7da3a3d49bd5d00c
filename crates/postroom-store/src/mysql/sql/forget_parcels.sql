-- Ends a claim on parcels of which none is left. Token.
DELETE FROM outbox_claim WHERE token = ?
