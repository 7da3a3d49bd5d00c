-- Nor do their messages. ?1 a fresh token, ?2 ids, ?3 now.
UPDATE integration_outbox SET status = 'PENDING', updated_at = ?3, settled = ?1
WHERE id IN (SELECT value FROM json_each(?2)) AND status = 'FAILED'
