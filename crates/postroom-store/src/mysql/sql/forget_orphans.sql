-- Removes deliveries. {ids}.
DELETE d FROM outbox_delivery AS d FORCE INDEX (PRIMARY) WHERE d.message_id IN ({ids})
