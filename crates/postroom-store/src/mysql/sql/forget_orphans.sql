-- Removes a delivery. {id}.
DELETE FROM outbox_delivery WHERE message_id = {id}
