-- Open messages that neither a parcel nor a delivery names, from a number on. `in_neither.sql` ends it.
-- ?1 after, ?2 rows.
SELECT m.seq, m.id FROM integration_outbox AS m
WHERE m.seq > ?1 AND
