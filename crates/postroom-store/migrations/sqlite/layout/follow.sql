-- Follows a change by hand, as the trigger of 0001_outbox.sql does. Postroom changes the ledger first: where that
-- says already what the row says by now, the change is its own. Of the row only what was changed counts, since the
-- ledger may know better what the row cannot say.
CREATE TRIGGER outbox_follow AFTER UPDATE OF {watched} ON {table}
WHEN ({changed})
    AND ({old.status} IS NOT {new.status} OR {old.due_at} IS NOT {new.due_at}
         OR {old.integration_type} IS NOT {new.integration_type} OR {old.id} IS NOT {new.id})
BEGIN
    -- Another key is another message.
    DELETE FROM outbox_delivery
    WHERE message_id = {old.id} AND claim IS NULL
      AND ({new.status} NOT IN ('PENDING', 'FAILED', 'DEAD') OR {old.id} IS NOT {new.id});

    UPDATE outbox_delivery
    SET seq = {new.seq}, integration = {new.integration_type}, rescues = 0,
        due_at = CASE WHEN {old.due_at} IS NOT {new.due_at} THEN {new.due_ms} ELSE due_at END,
        since = CASE WHEN {old.due_at} IS NOT {new.due_at} THEN {new.due_ms} ELSE since END,
        state = CASE WHEN {old.status} IS NOT {new.status} THEN {new.state} ELSE state END,
        attempts = CASE WHEN {old.status} IS NOT {new.status} THEN 0 ELSE attempts END
    WHERE message_id = {new.id} AND claim IS NULL
      AND (integration IS NOT {new.integration_type}
           OR ({old.due_at} IS NOT {new.due_at} AND due_at IS NOT {new.due_ms})
           OR ({old.status} IS NOT {new.status} AND state IS NOT {new.state}));

    -- It was in a parcel that nobody holds, or closed. What was closed may have had any number of dispatches.
    INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration, dispatch)
    SELECT {new.id}, {new.seq}, {new.due_ms}, {new.due_ms}, {new.state}, {new.integration_type},
           CASE WHEN EXISTS (SELECT 1 FROM outbox_parcel AS p
                             WHERE p.integration = {old.integration_type} AND p.seq = {old.seq}
                               AND p.message_id = {old.id})
                THEN 0 ELSE CAST(strftime('%s', 'now') AS INTEGER) - 1577836800 END
    WHERE {new.status} IN ('PENDING', 'FAILED', 'DEAD')
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = {new.id})
      AND ({old.id} IS NOT {new.id} OR NOT {held});

    DELETE FROM outbox_parcel
    WHERE integration = {old.integration_type} AND seq = {old.seq} AND message_id = {old.id} AND NOT {held};
END;
