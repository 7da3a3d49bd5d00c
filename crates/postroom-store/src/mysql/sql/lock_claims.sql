-- Locks claims, in order: settlements of one claim take turns, and one that waited for a rescue finds
-- nothing. {tokens}.
SELECT token, parcels FROM outbox_claim FORCE INDEX (PRIMARY)
WHERE token IN ({tokens}) ORDER BY token FOR UPDATE
