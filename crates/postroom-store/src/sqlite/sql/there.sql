-- Which of these messages exist. ?1 ids.
SELECT m.id FROM json_each(?1) AS named
CROSS JOIN integration_outbox AS m ON m.id = named.value
