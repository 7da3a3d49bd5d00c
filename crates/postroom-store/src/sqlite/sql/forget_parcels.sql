-- A claim on parcels goes once none of them is there, whatever the relay thinks: part of its batch may not
-- be recorded. Then it stays, and its end brings back what is left. ?1 token.
DELETE FROM outbox_claim
WHERE token = ?1 AND NOT EXISTS (SELECT 1 FROM outbox_in_flight AS f WHERE f.token = ?1)
