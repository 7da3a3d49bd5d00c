-- Numbers that several messages have: their sequence was behind. $1 after which number, $2 rows.
SELECT seq FROM core_outbox.integration_outbox
WHERE seq > $1
GROUP BY seq
HAVING count(*) > 1
ORDER BY seq LIMIT $2
