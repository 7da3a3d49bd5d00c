-- Which of these messages have a delivery: it outranks their parcel. ?1 ids.
SELECT d.message_id
FROM json_each(?1) AS named
CROSS JOIN outbox_delivery AS d ON d.message_id = named.value
