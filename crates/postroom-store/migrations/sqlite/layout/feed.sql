-- Feeds the ledger of {table}, as the trigger of 0001_outbox.sql does.
CREATE TRIGGER outbox_feed AFTER INSERT ON {table}
WHEN {new.status} IN ('PENDING', 'FAILED', 'DEAD')
BEGIN
{besides}    UPDATE outbox_delivery
    SET seq = {new.seq}, integration = {new.integration_type}, due_at = {new.due_ms}, since = {new.due_ms},
        state = {new.state}, attempts = 0, last_error = NULL, is_replay = 0
    WHERE message_id = {new.id} AND claim IS NULL;

    INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
    SELECT {new.id}, {new.seq}, {new.due_ms}, {new.due_ms}, {new.state}, {new.integration_type}
    WHERE ({new.status} <> 'PENDING' OR julianday({new.due_at}) > julianday('now', '+1 second'))
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = {new.id});

    INSERT INTO outbox_parcel (integration, seq, message_id, due_at)
    SELECT {new.integration_type}, {new.seq}, {new.id}, {new.due_ms}
    WHERE NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = {new.id})
      AND NOT EXISTS (SELECT 1 FROM outbox_parcel AS p
                      WHERE p.integration = {new.integration_type} AND p.seq = {new.seq}
                        AND p.message_id = {new.id});
END;
