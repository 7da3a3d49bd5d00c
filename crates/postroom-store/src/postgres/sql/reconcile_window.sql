-- Where a window of messages ends. $1 its first id, $2 its rows.
SELECT id FROM core_outbox.integration_outbox WHERE id >= $1 ORDER BY id OFFSET $2 LIMIT 1
