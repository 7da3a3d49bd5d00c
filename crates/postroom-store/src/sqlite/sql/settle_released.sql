-- Back to the lane. `follow.sql` comes next: what was changed by hand meanwhile counts now. ?1 the claim's
-- token, ?2 ids.
UPDATE outbox_delivery SET claim = NULL
WHERE message_id IN (SELECT value FROM json_each(?2)) AND claim = ?1
RETURNING message_id
