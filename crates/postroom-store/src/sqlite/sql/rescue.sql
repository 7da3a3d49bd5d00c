-- Frees the deliveries of an expired claim. ?1 token, ?2 rescues to add.
UPDATE outbox_delivery INDEXED BY outbox_delivery_claimed
SET claim = NULL, rescues = rescues + ?2
WHERE claim = ?1
RETURNING message_id
