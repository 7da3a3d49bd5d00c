-- What is written to the view, as the layout writes it. Statements get back what they propose, as far as some trigger
-- reads it: so each reads the id.
CREATE TRIGGER outbox_write_sent INSTEAD OF UPDATE ON integration_outbox
WHEN NEW.status = 'SENT' AND NEW.id IS NOT NULL
BEGIN
    {sent}
END;
CREATE TRIGGER outbox_write_failed INSTEAD OF UPDATE ON integration_outbox
WHEN NEW.status = 'FAILED' AND NEW.id IS NOT NULL
    AND (OLD.status <> 'FAILED' OR OLD.attempts <> NEW.attempts OR OLD.last_error IS NOT NEW.last_error)
BEGIN
    {failed}
END;
CREATE TRIGGER outbox_write_dead INSTEAD OF UPDATE ON integration_outbox
WHEN NEW.status = 'DEAD' AND NEW.id IS NOT NULL
BEGIN
    {dead}
END;
CREATE TRIGGER outbox_write_reopened INSTEAD OF UPDATE ON integration_outbox
WHEN NEW.status = 'PENDING' AND NEW.id IS NOT NULL
    AND (OLD.status <> 'PENDING' OR OLD.attempts <> NEW.attempts)
BEGIN
    {reopened}
END;
CREATE TRIGGER outbox_write_postponed INSTEAD OF UPDATE ON integration_outbox
WHEN NEW.id IS NOT NULL AND OLD.due_at IS NOT NEW.due_at AND NEW.status IN ('PENDING', 'FAILED')
    AND OLD.status = NEW.status AND OLD.attempts = NEW.attempts AND OLD.last_error IS NEW.last_error
BEGIN
    {postponed}
END;
CREATE TRIGGER outbox_write_gone INSTEAD OF DELETE ON integration_outbox
BEGIN
    DELETE FROM {table} WHERE {rowid} = OLD.seq;
END;
