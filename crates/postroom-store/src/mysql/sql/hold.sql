-- Makes deliveries carry a token, as far as they are still in their queue. {token}, {ids}, {queue}.
UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = {token}
WHERE message_id IN ({ids}) AND queue = {queue}
