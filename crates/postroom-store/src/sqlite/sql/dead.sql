-- Dead deliveries, from a number on. ?1 after, ?2 rows.
SELECT seq, message_id FROM outbox_delivery INDEXED BY outbox_delivery_dead
WHERE state = 'd' AND claim IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2
