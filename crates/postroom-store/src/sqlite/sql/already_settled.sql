-- Which of these messages carry the word of this token already: the answer to a settlement whose commit had
-- an unknown outcome. ?1 token, ?2 ids.
SELECT id FROM integration_outbox
WHERE id IN (SELECT value FROM json_each(?2)) AND (settled = ?1 /*foreign:OR status IN ('SENT', 'DEAD')*/)
