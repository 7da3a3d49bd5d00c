-- ?1 how many dispatches were over when this one began; it is over now, ?2 ids. What is not
-- returned was lost to another relay, or is another dispatch's.
DELETE FROM outbox_delivery
WHERE message_id IN (SELECT value FROM json_each(?2)) AND dispatch = ?1 AND state <> 'd'
RETURNING message_id
