-- Waiting messages become dead; they are locked. {why}, {at}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'DEAD', last_error = '{why}', updated_at = {at}, settled = {token}
WHERE seq IN ({seqs})
