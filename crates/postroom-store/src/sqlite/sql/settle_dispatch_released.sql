-- Like `settle_released.sql`, by the number of a dispatch, which is over: its job is gone. ?1 how many
-- dispatches were over when this one began, ?2 ids.
UPDATE outbox_delivery SET claim = NULL, dispatch = dispatch + 1
WHERE message_id IN (SELECT value FROM json_each(?2)) AND dispatch = ?1 AND state <> 'd'
RETURNING message_id
