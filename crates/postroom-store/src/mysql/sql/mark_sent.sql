-- Messages that were delivered, which are locked. {at}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'SENT', sent_at = {at}, updated_at = {at}, settled = {token}
WHERE seq IN ({seqs})
