-- Which of these messages carry the word of this token already: the answer to a settlement
-- whose commit had an unknown outcome. $1 token, $2 ids.
SELECT id FROM core_outbox.integration_outbox WHERE id = ANY ($2) AND settled = $1
UNION ALL
SELECT noted.id FROM (SELECT unnest(ids) AS id FROM core_outbox.sent WHERE token = $1) AS noted
WHERE noted.id = ANY ($2)
/*foreign: UNION ALL
-- Their rows say nothing of tokens: what is closed is done.
SELECT m.id FROM core_outbox.integration_outbox m WHERE m.id = ANY ($2) AND m.status IN ('SENT', 'DEAD') */
