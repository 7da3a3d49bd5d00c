-- ?1 how many dispatches were over when this one began; it is over now, ?2 ids.
-- `follow.sql` comes next: what was changed by hand meanwhile counts now.
UPDATE outbox_delivery SET claim = NULL, dispatch = dispatch + 1
WHERE message_id IN (SELECT value FROM json_each(?2)) AND dispatch = ?1 AND state <> 'd'
RETURNING message_id
