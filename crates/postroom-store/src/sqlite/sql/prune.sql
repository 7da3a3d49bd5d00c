-- The index goes by text, which is close; the comparison of times is exact. ?1 before, ?2 rows.
DELETE FROM integration_outbox WHERE seq IN (
    SELECT seq FROM integration_outbox INDEXED BY outbox_sent
    WHERE status = 'SENT' AND coalesce(sent_at, created_at) < ?1
      AND julianday(coalesce(sent_at, created_at)) < julianday(?1)
    ORDER BY coalesce(sent_at, created_at) LIMIT ?2
) RETURNING id
