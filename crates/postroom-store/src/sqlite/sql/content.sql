-- Ends the statement that reads messages in the order of their numbers. ?1 numbers, ?2 payload limit,
-- ?3 headers limit. What is over its limit is left out.
, CASE WHEN octet_length(m.payload) <= ?2 THEN m.payload END,
CASE WHEN octet_length(m.headers) <= ?3 THEN m.headers END,
m.headers IS NOT NULL
FROM json_each(?1) AS taken
CROSS JOIN integration_outbox AS m ON m.seq = taken.value
