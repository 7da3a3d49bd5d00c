-- The number of each message's last attempt, where there was one: the next one counts on. {seqs}.
SELECT seq, MAX(number) FROM outbox_attempt FORCE INDEX (PRIMARY) WHERE seq IN ({seqs}) GROUP BY seq
