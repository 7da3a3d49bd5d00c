-- Which of these messages are gone from their table before anybody delivered them, by lane. $1 ids.
SELECT named.integration, count(*)
FROM (
    SELECT d.message_id, d.integration FROM core_outbox.delivery d WHERE d.message_id = ANY ($1)
    UNION
    SELECT f.message_id, f.integration FROM core_outbox.in_flight f WHERE f.message_id = ANY ($1)
) AS named
WHERE NOT EXISTS (SELECT FROM core_outbox.integration_outbox m WHERE m.id = named.message_id)
GROUP BY named.integration
