-- The deliveries that carry a token. {token}.
SELECT message_id FROM outbox_delivery FORCE INDEX (outbox_delivery_claim) WHERE claim = {token}
