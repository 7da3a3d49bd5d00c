-- A message that is opened again, or whose delivery was lost, may have had any number of dispatches,
-- and a job of one of them may still be kept. None of their numbers comes again: its delivery counts
-- on from the seconds since 2020.
DROP TRIGGER IF EXISTS outbox_follow;

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
CREATE TRIGGER outbox_follow AFTER UPDATE OF status, due_at, integration_type ON integration_outbox
WHEN (OLD.status IS NOT NEW.status OR OLD.due_at IS NOT NEW.due_at
      OR OLD.integration_type IS NOT NEW.integration_type) AND OLD.settled IS NEW.settled
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
    ON CONFLICT DO NOTHING;
END;
