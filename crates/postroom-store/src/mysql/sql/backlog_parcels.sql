-- Parcels by integration. What somebody holds is among them; the claims say which.
SELECT integration, COUNT(*), MIN(due_at) FROM outbox_parcel GROUP BY integration
