-- Locks a claim: settlements of one claim take turns, and one that waited for a rescue finds nothing. {token}.
SELECT token, parcels FROM outbox_claim WHERE token = {token} FOR UPDATE
