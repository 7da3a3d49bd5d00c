-- Ends the statement that reads parcels of one lane above its mark, in order. ?1 lane, ?2 mark, ?3 rows. No
-- claim names any of them. On PostgreSQL one statement locks the lane, moves the mark and claims; here the
-- transaction holds the write lock.
FROM outbox_parcel AS p
LEFT JOIN integration_outbox AS m ON m.seq = p.seq AND m.id = p.message_id
WHERE p.integration = ?1 AND p.seq > ?2
ORDER BY p.seq, p.message_id LIMIT ?3
