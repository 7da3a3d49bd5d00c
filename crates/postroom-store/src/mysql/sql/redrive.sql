-- Dead messages again, which are locked. {at}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'PENDING', attempts = 0, due_at = {at}, updated_at = {at}, settled = {token}
WHERE seq IN ({seqs})
