-- Adopts a table core_outbox.integration_outbox that holds an older outbox: the columns of the
-- first twenty lines of 0001, a unique index on stream and event, an index on the status, and a
-- dispatcher that claims by writing CLAIMED. Producers go on meanwhile, with the columns they
-- know.
--
-- What 0001 says is taken from there: `-- postroom: 0001 …` stands for the statement that begins
-- like this, or for all the others.

-- Nothing here rewrites the table, so the lock is short. The fence comes first: from now on the
-- old dispatcher is stopped by an error, and what it has claimed can still be finished.
ALTER TABLE core_outbox.integration_outbox
    ADD CONSTRAINT claims_live_in_ledger CHECK (status <> 'CLAIMED') NOT VALID,
    ADD CONSTRAINT attempts_not_negative CHECK (attempts >= 0) NOT VALID,
    ADD CONSTRAINT max_attempts_at_least_one CHECK (max_attempts >= 1) NOT VALID,
    ADD CONSTRAINT times_finite CHECK (
        least(due_at, created_at, updated_at, occurred_at, sent_at) > '-infinity'
        AND greatest(due_at, created_at, updated_at, occurred_at, sent_at) < '100000-01-01Z'
    ) NOT VALID,
    ADD COLUMN seq bigint,
    ADD COLUMN copy int NOT NULL DEFAULT 0,
    ADD COLUMN ordering_key varchar(200),
    ADD COLUMN causation_id varchar(120),
    ADD COLUMN source varchar(120),
    ADD COLUMN schema_version int NOT NULL DEFAULT 1,
    ADD COLUMN occurred_at timestamptz,
    ADD COLUMN settled uuid,
    SET (fillfactor = 50);

-- Rows that are here get the low numbers, in the order they were created; rows to come begin
-- above: no row of this table takes less than 80 bytes.
CREATE SEQUENCE core_outbox.adoption_old;
CREATE SEQUENCE core_outbox.adoption_new;
SELECT setval('core_outbox.adoption_new',
              pg_relation_size('core_outbox.integration_outbox') / 80 + 1, false);
-- A producer that may insert and no more must not fail for the number.
GRANT USAGE ON SEQUENCE core_outbox.adoption_new TO PUBLIC;
ALTER TABLE core_outbox.integration_outbox
    ALTER COLUMN seq SET DEFAULT nextval('core_outbox.adoption_new');

-- postroom: 0001

-- Nor for the id, where functions are not everybody's by default.
DO $$
BEGIN
    IF NOT has_function_privilege('public', 'core_outbox.uuid_v7()', 'EXECUTE') THEN
        GRANT EXECUTE ON FUNCTION core_outbox.uuid_v7() TO PUBLIC;
    END IF;
END
$$;
ALTER TABLE core_outbox.integration_outbox ALTER COLUMN id SET DEFAULT core_outbox.uuid_v7();

-- Gives a row that was here its number and its delivery at its first change, whoever makes it:
-- the loop below, an old worker that finishes what it had claimed, somebody by hand.
CREATE FUNCTION core_outbox.adopt_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.seq := nextval('core_outbox.adoption_old');
    IF OLD.status = 'CLAIMED' AND NEW.status = 'CLAIMED' THEN
        -- An old worker may still finish it, so it is due only after a while. `locked_by` stays
        -- for the worker that looks for its own.
        NEW.status := CASE WHEN NEW.attempts > 0 THEN 'FAILED' ELSE 'PENDING' END;
        NEW.due_at := greatest(NEW.due_at, now() + interval '{claimed_grace} seconds');
    END IF;
    IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
        INSERT INTO core_outbox.delivery
            (message_id, seq, due_at, since, lane, bytes, state, integration)
        VALUES (NEW.id, NEW.seq, NEW.due_at, NEW.due_at, core_outbox.lane_of(NEW.integration_type),
                core_outbox.content_bytes(NEW.payload, NEW.headers),
                core_outbox.state_of(NEW.status), NEW.integration_type);
    END IF;
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION core_outbox.adopt_row() FROM PUBLIC;
CREATE TRIGGER adopt_row BEFORE UPDATE ON core_outbox.integration_outbox
    FOR EACH ROW WHEN (OLD.seq IS NULL) EXECUTE FUNCTION core_outbox.adopt_row();
