-- Parcels of one lane at or below its mark, from the beginning. ?1 lane, ?2 mark, ?3 rows. Nearly all of
-- them are in flight; which ones, is compared in Rust with what the claims name.
--
-- On PostgreSQL a sweep finds what committed late. That cannot happen here: SQLite has one writer, which
-- gets its numbers under the write lock, so they rise in the order of commits, and a rollback gives them
-- back. But numbers may be low all the same: set by hand, or given again after somebody has emptied the
-- table and its line in sqlite_sequence. And a claim may be deleted by hand.
SELECT p.integration, p.seq, p.message_id
FROM outbox_parcel AS p
WHERE p.integration = ?1 AND p.seq <= ?2
ORDER BY p.seq, p.message_id LIMIT ?3
