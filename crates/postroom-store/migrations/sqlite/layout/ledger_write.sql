UPDATE outbox_delivery
    SET state = CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END,
        due_at = {due_ms}, attempts = NEW.attempts, last_error = NEW.last_error
    WHERE message_id = OLD.id;
