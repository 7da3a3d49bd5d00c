-- ?1 ids, ?2 now, ?3 a fresh token.
UPDATE integration_outbox
SET status = 'PENDING', attempts = 0, due_at = ?2, updated_at = ?2, settled = ?3
WHERE id IN (SELECT value FROM json_each(?1))
