-- A message that is opened again, or whose delivery was lost, may have had any number of dispatches,
-- and a job of one of them may still be kept. None of their numbers comes again: its delivery counts
-- on from the seconds since 2020.

CREATE OR REPLACE FUNCTION core_outbox.follow_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A claimed delivery is never touched: the attempt under way decides for itself.
    -- Statuses are listed, so that one nobody knows is left alone: such a message has no
    -- delivery, like a SENT one.
    IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
        UPDATE core_outbox.delivery
        SET due_at = NEW.due_at, integration = NEW.integration_type, rescues = 0,
            failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
        WHERE seq = NEW.seq AND claim IS NULL;
        IF NOT FOUND THEN
            INSERT INTO core_outbox.delivery
                (seq, message_id, due_at, bytes, failed, dead, integration, dispatch)
            VALUES (NEW.seq, NEW.id, NEW.due_at,
                    pg_column_size(NEW.payload) + coalesce(pg_column_size(NEW.headers), 0),
                    NEW.status = 'FAILED', NEW.status = 'DEAD', NEW.integration_type,
                    (extract(epoch FROM clock_timestamp()) - 1577836800)::int)
            ON CONFLICT DO NOTHING;
        END IF;
    ELSE
        DELETE FROM core_outbox.delivery WHERE seq = NEW.seq AND claim IS NULL;
    END IF;
    RETURN NULL;
END
$$;
