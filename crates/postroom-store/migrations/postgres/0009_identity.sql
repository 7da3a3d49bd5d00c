-- A message is identified by its id. Its number may come again after a TRUNCATE … RESTART IDENTITY,
-- and two messages may share one after a restore or a switchover that left the sequence behind.
--
-- * A delivery belongs to the message that it names, and not to whatever message has its number.
-- * The index on `seq` is not unique: ON CONFLICT DO NOTHING would take a number that is in use for a
--   duplicate, and drop the new message without an error.
-- * Postroom's own writes are told from changes by hand by a setting of its transactions. No column
--   can do that: whoever saves a whole row that was read a while ago writes all of them.

-- How far the numbers in use are ahead of their sequence; 0 when they are not. Relays call this and
-- the next one: they have no right to the sequence itself.
CREATE OR REPLACE FUNCTION core_outbox.sequence_behind() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    numbers regclass := pg_get_serial_sequence('core_outbox.integration_outbox', 'seq');
    drawn   bigint;
BEGIN
    EXECUTE format('SELECT last_value - (NOT is_called)::int FROM %s', numbers) INTO drawn;
    RETURN greatest((SELECT max(seq) FROM core_outbox.integration_outbox) - drawn, 0);
END
$$;

-- Moves the sequence on when it is behind; whether it was.
CREATE OR REPLACE FUNCTION core_outbox.advance_sequence() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    numbers regclass := pg_get_serial_sequence('core_outbox.integration_outbox', 'seq');
    behind  bigint   := core_outbox.sequence_behind();
BEGIN
    IF behind = 0 THEN
        RETURN false;
    END IF;
    -- Beyond what others draw between the two statements: a sequence cannot be locked, and must not
    -- be set back.
    PERFORM setval(numbers, nextval(numbers) + behind + 100000);
    RETURN true;
END
$$;

-- `feed_deliveries` and `wake_relay` below carry no settings: setting the search path was a fifth of what an
-- insert of one row paid. So they name the schema of everything, operators too, since whoever inserts
-- chooses what else a name could mean. These two are bound to their operators here and now, and the
-- planner puts them in place. Everybody may call them: they do nothing that their caller may not.
CREATE OR REPLACE FUNCTION core_outbox.is_waiting(status varchar) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN status IN ('PENDING', 'FAILED', 'DEAD');

CREATE OR REPLACE FUNCTION core_outbox.content_bytes(payload jsonb, headers jsonb) RETURNS integer
LANGUAGE sql STABLE
RETURN pg_column_size(payload) + coalesce(pg_column_size(headers), 0);

-- Serializable producers would fail for looking: each reads the index page that the others write to.
CREATE OR REPLACE FUNCTION core_outbox.is_undelivered(lowest bigint, highest bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT CASE current_setting('transaction_isolation') WHEN 'serializable' THEN false ELSE
        NOT EXISTS (SELECT FROM core_outbox.delivery WHERE seq BETWEEN lowest AND highest)
    END
$$;

-- For messages whose numbers have deliveries already. One of the same message is right: a data-only
-- restore brings the deliveries first. One of a message that is gone, after a TRUNCATE for instance,
-- is replaced.
CREATE OR REPLACE FUNCTION core_outbox.replace_deliveries(ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    taken bigint;
BEGIN
    UPDATE core_outbox.delivery AS d
    SET message_id = m.id, due_at = m.due_at, integration = m.integration_type,
        bytes = core_outbox.content_bytes(m.payload, m.headers),
        failed = m.status = 'FAILED', dead = m.status = 'DEAD',
        claim = NULL, rescues = 0, dispatch = 0
    FROM core_outbox.integration_outbox AS m
    WHERE m.id = ANY (ids) AND core_outbox.is_waiting(m.status)
      AND d.seq = m.seq AND d.message_id <> m.id
      AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox o WHERE o.id = d.message_id);
    SELECT m.seq INTO taken
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ids) AND core_outbox.is_waiting(m.status)
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d
                      WHERE d.seq = m.seq AND d.message_id = m.id)
    LIMIT 1;
    IF FOUND THEN
        -- The sequence stays where it is then, whatever becomes of this transaction. The error is
        -- one that programs try again after, and none that some take for a duplicate.
        PERFORM core_outbox.advance_sequence();
        RAISE EXCEPTION 'the number % belongs to another message. If a restore or a switchover has '
            'left the sequence of core_outbox.integration_outbox behind, it has been moved on: try '
            'again. If seq was given by hand, leave it to its default', taken
            USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION core_outbox.feed_deliveries() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
AS $$
DECLARE
    waiting  bigint := 1;
    lowest   bigint;
    highest  bigint;
    fed      bigint;
BEGIN
    -- ON CONFLICT costs a producer of many rows 6 %, and looking first costs a producer of one row
    -- more than it saves.
    IF EXISTS (SELECT FROM fresh OFFSET 1) THEN
        SELECT pg_catalog.min(seq), pg_catalog.max(seq),
               pg_catalog.count(*) FILTER (WHERE core_outbox.is_waiting(status))
        INTO lowest, highest, waiting
        FROM fresh;
        IF core_outbox.is_undelivered(lowest, highest) THEN
            INSERT INTO core_outbox.delivery
                (seq, message_id, due_at, bytes, failed, dead, integration)
            SELECT seq, id, due_at, core_outbox.content_bytes(payload, headers),
                   status OPERATOR(pg_catalog.=) 'FAILED', status OPERATOR(pg_catalog.=) 'DEAD',
                   integration_type
            FROM fresh
            WHERE core_outbox.is_waiting(status);
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO core_outbox.delivery
        (seq, message_id, due_at, bytes, failed, dead, integration)
    SELECT seq, id, due_at, core_outbox.content_bytes(payload, headers),
           status OPERATOR(pg_catalog.=) 'FAILED', status OPERATOR(pg_catalog.=) 'DEAD',
           integration_type
    FROM fresh
    WHERE core_outbox.is_waiting(status)
    ON CONFLICT (seq) DO NOTHING;
    GET DIAGNOSTICS fed = ROW_COUNT;
    IF fed OPERATOR(pg_catalog.<) waiting THEN
        PERFORM core_outbox.replace_deliveries(
            ARRAY(SELECT id FROM fresh WHERE core_outbox.is_waiting(status)));
    END IF;
    RETURN NULL;
END
$$;

-- As in 0005_lean_producers.sql, without settings. An assignment is cheaper than PERFORM.
CREATE OR REPLACE FUNCTION core_outbox.wake_relay() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    unlocked boolean;
BEGIN
    IF pg_catalog.pg_try_advisory_lock(7305804403) THEN
        unlocked := pg_catalog.pg_advisory_unlock(7305804403);
    ELSIF pg_catalog.pg_try_advisory_lock_shared(7305804402) THEN
        unlocked := pg_catalog.pg_advisory_unlock_shared(7305804402);
        PERFORM pg_catalog.pg_notify('core_outbox', '');
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION core_outbox.follow_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A claimed delivery is never touched: the attempt under way decides for itself.
    -- Statuses are listed, so that one nobody knows is left alone: such a message has no
    -- delivery, like a SENT one.
    IF NEW.status NOT IN ('PENDING', 'FAILED', 'DEAD') THEN
        DELETE FROM core_outbox.delivery
        WHERE seq = NEW.seq AND message_id = NEW.id AND claim IS NULL;
        RETURN NULL;
    END IF;
    UPDATE core_outbox.delivery
    SET due_at = NEW.due_at, integration = NEW.integration_type, rescues = 0,
        failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
    WHERE seq = NEW.seq AND message_id = NEW.id AND claim IS NULL;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- It was closed, so jobs of earlier dispatches may be kept: none of their numbers comes again,
    -- see 0008_reopened.sql.
    INSERT INTO core_outbox.delivery AS d
        (seq, message_id, due_at, bytes, failed, dead, integration, dispatch)
    VALUES (NEW.seq, NEW.id, NEW.due_at,
            pg_column_size(NEW.payload) + coalesce(pg_column_size(NEW.headers), 0),
            NEW.status = 'FAILED', NEW.status = 'DEAD', NEW.integration_type,
            (extract(epoch FROM clock_timestamp()) - 1577836800)::int)
    ON CONFLICT (seq) DO UPDATE
    SET message_id = excluded.message_id, due_at = excluded.due_at, bytes = excluded.bytes,
        failed = excluded.failed, dead = excluded.dead, integration = excluded.integration,
        claim = NULL, rescues = 0, dispatch = excluded.dispatch
    WHERE d.message_id <> excluded.message_id
      AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m WHERE m.id = d.message_id);
    IF NOT FOUND AND NOT EXISTS (SELECT FROM core_outbox.delivery d
                                 WHERE d.seq = NEW.seq AND d.message_id = NEW.id) THEN
        RAISE EXCEPTION 'message % shares its number % with another: run `postroom reconcile`, and '
            'change it then', NEW.id, NEW.seq
            USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER outbox_follow
    AFTER UPDATE OF status, due_at, integration_type ON core_outbox.integration_outbox
    FOR EACH ROW
    WHEN ((OLD.status IS DISTINCT FROM NEW.status OR OLD.due_at IS DISTINCT FROM NEW.due_at
           OR OLD.integration_type IS DISTINCT FROM NEW.integration_type)
          AND current_setting('core_outbox.relay', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION core_outbox.follow_change();

CREATE OR REPLACE VIEW core_outbox.messages AS
SELECT m.id, m.source_stream_id, m.source_event_id, m.integration_type, m.event_type,
       m.payload, m.headers, m.tenant_id, m.user_id, m.correlation_id,
       m.due_at, m.attempts, m.max_attempts,
       CASE WHEN d.claim IS NULL THEN m.status ELSE 'CLAIMED' END AS status,
       c.since AS locked_at, c.worker AS locked_by,
       m.created_at, m.updated_at, m.sent_at, m.last_error,
       m.seq, m.copy, m.ordering_key, m.causation_id, m.source, m.schema_version, m.occurred_at
FROM core_outbox.integration_outbox m
LEFT JOIN core_outbox.delivery d ON d.seq = m.seq AND d.message_id = m.id
LEFT JOIN core_outbox.claim c ON c.token = d.claim;

-- Lists go by it in pages.
-- postroom: outside a transaction
CREATE INDEX CONCURRENTLY outbox_number ON core_outbox.integration_outbox (seq);

-- postroom: outside a transaction
DROP INDEX CONCURRENTLY IF EXISTS core_outbox.outbox_seq;
