-- Rows of a table that somebody else made, which are gone. No outcome: nothing is written to them. {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY) SET status = 'GONE' WHERE seq IN ({seqs})
