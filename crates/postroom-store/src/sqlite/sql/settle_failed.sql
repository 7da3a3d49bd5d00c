-- A failed attempt: due again, or dead. One that was sent elsewhere by hand during the attempt goes on there.
-- ?1 the claim's token, ?2 id, ?3 due, or null for dead.
UPDATE outbox_delivery
SET claim = NULL, rescues = 0, state = iif(?3 IS NULL, 'd', 'f'), due_at = coalesce(?3, due_at),
    integration = coalesce(
        (SELECT m.integration_type FROM integration_outbox AS m
         WHERE m.id = outbox_delivery.message_id), integration)
WHERE message_id = ?2 AND claim = ?1
