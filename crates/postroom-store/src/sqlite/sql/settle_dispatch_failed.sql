-- Like `settle_failed.sql`, by the number of a dispatch, which is over: whoever holds the claim. ?1 how many
-- dispatches were over when this one began, ?2 id, ?3 due, or null for dead.
UPDATE outbox_delivery
SET claim = NULL, rescues = 0, state = iif(?3 IS NULL, 'd', 'f'), due_at = coalesce(?3, due_at),
    integration = coalesce(
        (SELECT m.integration_type FROM integration_outbox AS m
         WHERE m.id = outbox_delivery.message_id), integration), dispatch = dispatch + 1
WHERE message_id = ?2 AND dispatch = ?1 AND state <> 'd'
