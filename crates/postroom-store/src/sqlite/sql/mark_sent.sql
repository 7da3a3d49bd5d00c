-- Messages that were delivered. ?1 token, ?2 ids, ?3 now.
UPDATE integration_outbox SET status = 'SENT', sent_at = ?3, updated_at = ?3, settled = ?1
WHERE id IN (SELECT value FROM json_each(?2))
RETURNING id
