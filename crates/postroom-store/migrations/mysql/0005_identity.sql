-- A message is identified by its id: its number comes again after a TRUNCATE, which restarts them, and
-- which fires no trigger. So a delivery that is there when a message is inserted belonged to another
-- one, and is replaced; and an attempt belongs to the message whose id it carries.
--
-- Postroom's own writes are told from changes by hand by a variable of its sessions. No column can do
-- that: whoever saves a whole row that was read a while ago writes all of them.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS and cannot replace a trigger. What was cut off must be
-- repeatable; what is inserted or changed by hand between the statements is found by
-- `postroom reconcile`.

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_attempt'
              AND COLUMN_NAME = 'message_id'),
    'DO 0',
    'ALTER TABLE outbox_attempt ADD COLUMN message_id CHAR(36) CHARACTER SET ascii COLLATE ascii_general_ci');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;

UPDATE outbox_attempt AS a
JOIN integration_outbox AS m ON m.seq = a.seq
SET a.message_id = m.id
WHERE a.message_id IS NULL;

DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;

DELIMITER $$

CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox FOR EACH ROW
IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
    INSERT INTO outbox_delivery (seq, integration, due_at, bytes, failed, dead)
    VALUES (NEW.seq, NEW.integration_type, NEW.due_at,
            OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
            NEW.status = 'FAILED', NEW.status = 'DEAD')
    ON DUPLICATE KEY UPDATE
        integration = NEW.integration_type, due_at = NEW.due_at,
        bytes = OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
        failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD',
        claim = NULL, rescues = 0, dispatch = 0;
ELSE
    DELETE FROM outbox_delivery WHERE seq = NEW.seq;
END IF$$

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
CREATE TRIGGER outbox_follow AFTER UPDATE ON integration_outbox FOR EACH ROW
IF @postroom_relay IS NULL AND (OLD.status <> NEW.status OR OLD.due_at <> NEW.due_at
    OR OLD.integration_type <> NEW.integration_type) THEN
    IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
        UPDATE outbox_delivery
        SET due_at = NEW.due_at, integration = NEW.integration_type, rescues = 0,
            failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
        WHERE seq = NEW.seq AND claim IS NULL;
        -- Where there is none, it was closed: see 0004_reopened.sql.
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
