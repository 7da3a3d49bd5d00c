-- Ends the deliveries of what was sent; `mark_sent.sql` follows. ?1 the claim's token, ?2 ids. What is not returned was
-- lost to another relay.
DELETE FROM outbox_delivery
WHERE message_id IN (SELECT value FROM json_each(?2)) AND claim = ?1
RETURNING message_id
