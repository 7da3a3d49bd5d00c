-- Like `settle_sent.sql`, by the number of a dispatch: whoever holds the claim. ?1 how many dispatches were
-- over when this one began, ?2 ids.
DELETE FROM outbox_delivery
WHERE message_id IN (SELECT value FROM json_each(?2)) AND dispatch = ?1 AND state <> 'd'
RETURNING message_id
