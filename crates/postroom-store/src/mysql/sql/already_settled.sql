-- Which of these messages carry the word of this token already: the answer to a settlement whose commit had
-- an unknown outcome. {token}, {seqs}.
SELECT seq, id FROM integration_outbox FORCE INDEX (PRIMARY)
WHERE seq IN ({seqs}) AND settled = {token}
