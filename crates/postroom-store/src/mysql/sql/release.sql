-- Messages that were taken from their relay are due at once, unless they were closed by hand. {at}, {token},
-- {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET due_at = {at}, updated_at = {at}, settled = {token}
WHERE seq IN ({seqs}) AND status IN ('PENDING', 'FAILED')
