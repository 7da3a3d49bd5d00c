-- The triggers of the ledger's own table: those of 0001_outbox.sql, and the way back to {table}.
DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;
DROP TRIGGER IF EXISTS outbox_write;
DROP TRIGGER IF EXISTS outbox_leave;

DELIMITER $$

{feed}

{follow}

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
