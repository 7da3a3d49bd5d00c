-- The triggers of the ledger's own table: those of 0001_outbox.sql, and the way back to {table}.
DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;
DROP TRIGGER IF EXISTS outbox_write;
DROP TRIGGER IF EXISTS outbox_leave;

DELIMITER $$

CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox FOR EACH ROW
IF NEW.status = 'PENDING' AND NEW.due_at <= UTC_TIMESTAMP(6) + INTERVAL 1 SECOND THEN
    INSERT INTO outbox_parcel (integration, seq, message_id, due_at, bytes)
    VALUES (NEW.integration_type, NEW.seq, NEW.id, NEW.due_at, LEAST(NEW.bytes, 4294967295))
    ON DUPLICATE KEY UPDATE seq = NEW.seq;
ELSEIF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
    INSERT INTO outbox_delivery (message_id, seq, integration, due_at, since, bytes, state)
    VALUES (NEW.id, NEW.seq, NEW.integration_type, NEW.due_at, NEW.due_at, LEAST(NEW.bytes, 4294967295),
            CASE NEW.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END)
    ON DUPLICATE KEY UPDATE
        seq = IF(claim IS NULL, NEW.seq, seq),
        integration = IF(claim IS NULL, NEW.integration_type, integration),
        due_at = IF(claim IS NULL, NEW.due_at, due_at),
        since = IF(claim IS NULL, NEW.due_at, since),
        state = IF(claim IS NULL,
                   CASE NEW.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END, state);
END IF$$

CREATE TRIGGER outbox_follow AFTER UPDATE ON integration_outbox FOR EACH ROW
IF @postroom_relay IS NULL AND (OLD.status <> NEW.status OR OLD.due_at <> NEW.due_at
    OR OLD.integration_type <> NEW.integration_type) THEN
    INSERT INTO outbox_pending_edit (integration, message_id) VALUES (OLD.integration_type, NEW.id);
END IF$$

-- What a relay or an operator has recorded, as the layout writes it.
CREATE TRIGGER outbox_write AFTER UPDATE ON integration_outbox FOR EACH ROW
IF @postroom_relay = 1 THEN
    IF NEW.status = 'SENT' THEN
        {sent}
    ELSEIF NEW.status = 'FAILED' AND (OLD.status <> 'FAILED' OR OLD.attempts <> NEW.attempts
                                      OR NOT (OLD.last_error <=> NEW.last_error)) THEN
        {failed}
    ELSEIF NEW.status = 'DEAD' THEN
        {dead}
    ELSEIF NEW.status = 'PENDING' AND NEW.attempts = 0 AND (OLD.status <> 'PENDING' OR OLD.attempts <> 0) THEN
        {reopened}
    ELSEIF NEW.status IN ('PENDING', 'FAILED') AND OLD.due_at <> NEW.due_at THEN
        {postponed}
    END IF;
END IF$$

-- What retention, or the layout, asks to be deleted after its delivery.
CREATE TRIGGER outbox_leave AFTER DELETE ON integration_outbox FOR EACH ROW
IF @postroom_relay = 1 THEN
    DELETE m FROM {table} AS m WHERE {same_as_old};
END IF$$

DELIMITER ;
