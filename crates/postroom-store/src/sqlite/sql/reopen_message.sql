-- Messages of deliveries that are dispatched again do not say that they failed any more. ?1 a fresh token, ?2 ids,
-- ?3 now.
UPDATE integration_outbox SET status = 'PENDING', updated_at = ?3, settled = ?1
WHERE id IN (SELECT value FROM json_each(?2)) AND status = 'FAILED'
