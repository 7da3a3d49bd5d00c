-- Which of these messages carry the word of this token already: the answer to a settlement
-- whose commit had an unknown outcome. $1 token, $2 ids.
SELECT id FROM core_outbox.integration_outbox WHERE id = ANY ($2) AND settled = $1
UNION ALL
SELECT noted.id FROM (SELECT unnest(ids) AS id FROM core_outbox.sent WHERE token = $1) AS noted
WHERE noted.id = ANY ($2)
