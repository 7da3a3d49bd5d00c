-- A message is identified by its id: its number comes again when someone empties the table and its
-- line in sqlite_sequence. So a delivery that is there when a message is inserted belonged to another
-- one, and is replaced; and an attempt belongs to the message whose id it carries.
ALTER TABLE outbox_attempt ADD COLUMN message_id TEXT;

UPDATE outbox_attempt
SET message_id = (SELECT m.id FROM integration_outbox AS m WHERE m.seq = outbox_attempt.seq);

DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;

CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox
BEGIN
    -- And not a conflict rule of the second statement: the producer's own, OR IGNORE, overrides it.
    DELETE FROM outbox_delivery WHERE seq = NEW.seq;

    INSERT INTO outbox_delivery (seq, integration, due_at, failed, dead)
    SELECT NEW.seq, NEW.integration_type,
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           NEW.status = 'FAILED', NEW.status = 'DEAD'
    WHERE NEW.status IN ('PENDING', 'FAILED', 'DEAD');
END;

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
--
-- Fires where the delivery does not say what the message says by now. Postroom changes the delivery
-- first, so its own writes never do; a column could not tell them from changes by hand, since whoever
-- saves a whole row that was read a while ago writes all of them.
CREATE TRIGGER outbox_follow AFTER UPDATE OF status, due_at, integration_type ON integration_outbox
WHEN (OLD.status IS NOT NEW.status OR OLD.due_at IS NOT NEW.due_at
      OR OLD.integration_type IS NOT NEW.integration_type)
    AND CASE WHEN NEW.status IN ('PENDING', 'FAILED', 'DEAD')
        THEN NOT EXISTS (
            SELECT 1 FROM outbox_delivery AS d
            WHERE d.seq = NEW.seq AND (
                d.claim IS NOT NULL
                OR d.integration = NEW.integration_type
                AND d.due_at
                    = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
                AND d.failed = (NEW.status = 'FAILED') AND d.dead = (NEW.status = 'DEAD')
            )
        )
        ELSE EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.seq = NEW.seq AND d.claim IS NULL)
        END
BEGIN
    DELETE FROM outbox_delivery
    WHERE seq = NEW.seq AND claim IS NULL AND NEW.status NOT IN ('PENDING', 'FAILED', 'DEAD');

    UPDATE outbox_delivery
    SET due_at = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        integration = NEW.integration_type,
        rescues = 0, failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
    WHERE seq = NEW.seq AND claim IS NULL;

    INSERT INTO outbox_delivery (seq, integration, due_at, failed, dead, dispatch)
    SELECT NEW.seq, NEW.integration_type,
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           NEW.status = 'FAILED', NEW.status = 'DEAD',
           CAST(strftime('%s', 'now') AS INTEGER) - 1577836800
    WHERE NEW.status IN ('PENDING', 'FAILED', 'DEAD')
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.seq = NEW.seq);
END;
