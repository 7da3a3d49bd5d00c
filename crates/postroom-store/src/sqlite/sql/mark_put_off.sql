-- ?1 a fresh token, ?2 id, ?3 due, ?4 now.
UPDATE integration_outbox SET due_at = ?3, updated_at = ?4, settled = ?1 WHERE id = ?2
