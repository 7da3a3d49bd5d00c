-- ?1 before.
SELECT count(*) FROM integration_outbox INDEXED BY outbox_sent
WHERE status = 'SENT' AND coalesce(sent_at, created_at) < ?1
  AND julianday(coalesce(sent_at, created_at)) < julianday(?1)
