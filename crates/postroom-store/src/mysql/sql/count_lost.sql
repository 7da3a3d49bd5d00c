-- An attempt of a message that was lost alone, unless it was closed meanwhile. Error, time, token, number.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'FAILED', attempts = LEAST(CAST(attempts AS SIGNED) + 1, 2147483647),
    last_error = ?, updated_at = ?, settled = ?
WHERE seq = ? AND status IN ('PENDING', 'FAILED')
