-- Deliveries of a claim that failed do so no more. ?1 token, ?2 numbers.
UPDATE outbox_delivery INDEXED BY outbox_delivery_number SET state = 'w'
WHERE seq IN (SELECT value FROM json_each(?2)) AND claim = ?1 AND state = 'f'
RETURNING message_id
