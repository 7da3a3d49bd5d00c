-- The deliveries under a claim. ?1 token.
SELECT message_id FROM outbox_delivery INDEXED BY outbox_delivery_claimed WHERE claim = ?1
