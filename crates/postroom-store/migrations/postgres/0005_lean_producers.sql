-- What a producer pays for its delivery, and for waking a relay.

-- Whether none of a range of numbers has a delivery. Apart from the trigger, since only inserts of
-- many rows ask, and settings cost every call of a function that carries them.
CREATE OR REPLACE FUNCTION core_outbox.is_undelivered(lowest bigint, highest bigint)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT NOT EXISTS (SELECT FROM core_outbox.delivery WHERE seq BETWEEN lowest AND highest)
$$;

CREATE OR REPLACE FUNCTION core_outbox.feed_deliveries() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lowest  bigint;
    highest bigint;
BEGIN
    SELECT min(seq), max(seq) INTO lowest, highest FROM fresh;
    -- Some may be there already: a data-only restore brings the deliveries itself, and would fail
    -- or lose messages without ON CONFLICT. That costs a producer of many rows 6 %, and looking
    -- first costs a producer of one row more than it saves.
    IF lowest < highest AND core_outbox.is_undelivered(lowest, highest) THEN
        INSERT INTO core_outbox.delivery
            (seq, message_id, due_at, bytes, failed, dead, integration)
        SELECT seq, id, due_at, pg_column_size(payload) + coalesce(pg_column_size(headers), 0),
               status = 'FAILED', status = 'DEAD', integration_type
        FROM fresh
        WHERE status IN ('PENDING', 'FAILED', 'DEAD');
    ELSE
        INSERT INTO core_outbox.delivery
            (seq, message_id, due_at, bytes, failed, dead, integration)
        SELECT seq, id, due_at, pg_column_size(payload) + coalesce(pg_column_size(headers), 0),
               status = 'FAILED', status = 'DEAD', integration_type
        FROM fresh
        WHERE status IN ('PENDING', 'FAILED', 'DEAD')
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION core_outbox.wake_relay() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Idle relays share the first lock, a busy one holds the second. NOTIFY makes a commit dearer
    -- and lets only one through at a time, so it is sent when somebody waits for it and nobody
    -- works: where no relay runs, nobody waits, and a busy one finds the message by itself.
    -- Another producer that is looking at this moment seems like an idle relay; that costs a
    -- signal too many.
    IF pg_try_advisory_lock(7305804403) THEN
        PERFORM pg_advisory_unlock(7305804403);
    ELSIF pg_try_advisory_lock_shared(7305804402) THEN
        PERFORM pg_advisory_unlock_shared(7305804402);
        PERFORM pg_notify('core_outbox', '');
    END IF;
    RETURN NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION core_outbox.is_undelivered(bigint, bigint) FROM PUBLIC;

-- Led by a number of fixed width: comparing names, and finding the columns behind them, was a
-- quarter of what a delivery cost its producer. Two integrations of one number share their place
-- and are told apart by name.
-- postroom: outside a transaction
CREATE INDEX CONCURRENTLY delivery_lane ON core_outbox.delivery
    (hashtextextended(integration, 0), due_at, seq)
    WHERE NOT dead AND rescues = 0;

-- postroom: outside a transaction
DROP INDEX CONCURRENTLY IF EXISTS core_outbox.delivery_due;
