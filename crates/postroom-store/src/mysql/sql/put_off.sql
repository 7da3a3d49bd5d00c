-- Messages that were put off, with a fresh token each time: no earlier settlement can pass for this one.
-- {due_at} by number, {at}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET due_at = {due_at}, updated_at = {at}, settled = {token}
WHERE seq IN ({seqs})
