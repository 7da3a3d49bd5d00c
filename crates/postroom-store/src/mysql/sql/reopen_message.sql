-- A fresh token: no earlier settlement can pass for this one. {at}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'PENDING', updated_at = {at}, settled = {token}
WHERE seq IN ({seqs}) AND status = 'FAILED'
