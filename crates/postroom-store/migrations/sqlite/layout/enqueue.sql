-- Enqueues from any language: INSERT INTO integration_outbox, with the columns of Postroom's own table, writes a row as
-- the layout has it.
CREATE TRIGGER outbox_enqueue INSTEAD OF INSERT ON integration_outbox
BEGIN
    SELECT RAISE(ABORT, 'message refused: source_event_id, event_type and payload are required')
    WHERE NEW.source_event_id IS NULL OR NEW.event_type IS NULL OR NEW.payload IS NULL;
    {lost}
    INSERT INTO {table} ({columns})
    VALUES ({values});
    -- Whoever said OR IGNORE may have written nothing.
    UPDATE outbox_enqueued SET seq = last_insert_rowid() WHERE changes() = 1;
    SELECT RAISE(ABORT, 'message refused: the layout sends this row elsewhere; name its integration, or add a route')
    FROM outbox_enqueued AS last CROSS JOIN integration_outbox AS m ON m.seq = last.seq
    WHERE changes() = 1 AND NEW.integration_type IS NOT NULL
      AND m.integration_type IS NOT NEW.integration_type;
END;
