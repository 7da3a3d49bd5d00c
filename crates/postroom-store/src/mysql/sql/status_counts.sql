-- Counts by status over the whole table.
SELECT status, COUNT(*) FROM outbox_messages GROUP BY status ORDER BY status
