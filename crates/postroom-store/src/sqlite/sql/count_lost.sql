-- A message that was lost alone has failed. One that was closed by hand meanwhile stays closed. ?1 a fresh
-- token, ?2 ids, ?3 error, ?4 now.
UPDATE integration_outbox
SET status = 'FAILED', attempts = min(attempts + 1, 2147483647),
    last_error = ?3, updated_at = ?4, settled = ?1
WHERE id IN (SELECT value FROM json_each(?2)) AND status IN ('PENDING', 'FAILED')
RETURNING id
