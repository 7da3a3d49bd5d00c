-- ?1 ids, ?2 now, ?3 a fresh token, ?4 error.
UPDATE integration_outbox
SET status = 'DEAD', last_error = ?4, updated_at = ?2, settled = ?3
WHERE id IN (SELECT value FROM json_each(?1))
