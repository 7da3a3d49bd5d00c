-- Which of these deliveries carry a token. {token}, {ids}.
SELECT message_id FROM outbox_delivery FORCE INDEX (PRIMARY)
WHERE message_id IN ({ids}) AND claim = {token}
