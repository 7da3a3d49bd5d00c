-- {ids}.
UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET state = 'w' WHERE message_id IN ({ids})
