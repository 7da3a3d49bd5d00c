-- The SENT messages that are to be deleted. The index goes by text, which is close; the comparison of times is
-- exact. ?1 before, ?2 rows.
SELECT id FROM integration_outbox INDEXED BY outbox_sent
WHERE status = 'SENT' AND coalesce(sent_at, created_at) < ?1
  AND julianday(coalesce(sent_at, created_at)) < julianday(?1)
ORDER BY coalesce(sent_at, created_at) LIMIT ?2
