-- Rows of a table that somebody else made, which were delivered and are locked, are to be delivered again. {at},
-- {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'PENDING', attempts = 0, due_at = {at}, updated_at = {at}, is_replay = TRUE, settled = {token}
WHERE seq IN ({seqs})
