-- ?1 token, ?2 id, ?3 due, or null for dead, ?4 attempts to add, ?5 error, ?6 now, ?7 how many attempts had
-- failed before this one, or null: an external worker may have counted it in the row itself. A count set
-- by hand to the end of its type stays there.
UPDATE integration_outbox
SET status = iif(?3 IS NULL, 'DEAD', 'FAILED'),
    attempts = min(coalesce(max(attempts, ?7 + ?4), attempts + ?4), 2147483647),
    due_at = coalesce(?3, due_at), last_error = ?5, updated_at = ?6, settled = ?1
WHERE id = ?2
RETURNING id
