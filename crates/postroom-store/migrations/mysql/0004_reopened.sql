-- A message that is opened again, or whose delivery was lost, may have had any number of dispatches,
-- and a job of one of them may still be kept. None of their numbers comes again: its delivery counts
-- on from the seconds since 2020.
--
-- MySQL cannot replace a trigger. What is changed by hand between the two statements is found by
-- `postroom reconcile`.

DROP TRIGGER IF EXISTS outbox_follow;

DELIMITER $$

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
CREATE TRIGGER outbox_follow AFTER UPDATE ON integration_outbox FOR EACH ROW
IF (OLD.status <> NEW.status OR OLD.due_at <> NEW.due_at
    OR OLD.integration_type <> NEW.integration_type) AND OLD.settled <=> NEW.settled THEN
    IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
        UPDATE outbox_delivery
        SET due_at = NEW.due_at, integration = NEW.integration_type, rescues = 0,
            failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
        WHERE seq = NEW.seq AND claim IS NULL;
        INSERT INTO outbox_delivery (seq, integration, due_at, bytes, failed, dead, dispatch)
        VALUES (NEW.seq, NEW.integration_type, NEW.due_at,
                OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
                NEW.status = 'FAILED', NEW.status = 'DEAD', UNIX_TIMESTAMP() - 1577836800)
        ON DUPLICATE KEY UPDATE seq = NEW.seq;
    ELSE
        DELETE FROM outbox_delivery WHERE seq = NEW.seq AND claim IS NULL;
    END IF;
END IF$$

DELIMITER ;
