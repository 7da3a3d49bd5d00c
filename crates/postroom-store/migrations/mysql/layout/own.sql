-- The way back to {table}. The triggers before these are dropped after it: there is no moment without any.
DROP TRIGGER IF EXISTS outbox_write_{version};
DROP TRIGGER IF EXISTS outbox_leave_{version};

DELIMITER $$

-- What a relay or an operator has recorded, as the layout writes it. What does not fit is refused, and not cut or
-- emptied: the row would read as something else.
DELIMITER ;

{strict};

DELIMITER $$

CREATE TRIGGER outbox_write_{version} AFTER UPDATE ON integration_outbox FOR EACH ROW
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

DELIMITER ;

{mode};

DELIMITER $$

-- What retention, or the layout, asks to be deleted after its delivery.
CREATE TRIGGER outbox_leave_{version} AFTER DELETE ON integration_outbox FOR EACH ROW
IF @postroom_relay = 1 THEN
    DELETE m FROM {table} AS m WHERE {same_as_old};
END IF$$

DELIMITER ;
