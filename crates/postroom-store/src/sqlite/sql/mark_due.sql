-- Of what is held. ?1 ids, ?2 now, ?3 a fresh token.
UPDATE integration_outbox SET due_at = ?2, updated_at = ?2, settled = ?3
WHERE id IN (SELECT value FROM json_each(?1)) AND status IN ('PENDING', 'FAILED')
