-- The triggers of {table}. They write to the ledger and to nothing else.
DELIMITER $$

-- A key that was there before, and whose row left without a trigger (TRUNCATE), is open again by a note. Not by ON
-- DUPLICATE KEY UPDATE, which in the default isolation locks the gap that other producers insert into.
CREATE TRIGGER {trigger_insert} AFTER INSERT ON {table} FOR EACH ROW
BEGIN
    DECLARE is_known BOOLEAN DEFAULT FALSE;
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1062 SET is_known = TRUE;
        INSERT INTO {ledger}.integration_outbox
            (id, {key_names}, integration_type, status, due_at, attempts, max_attempts, created_at, updated_at,
             sent_at, last_error, bytes)
        VALUES ({new.id}, {new_keys}, {new.integration_type}, {new.status}, {new.due_at}, {new.attempts},
                {new.max_attempts}, {new.created_at}, {new.updated_at}, {new.sent_at}, {new.last_error}, {new.bytes});
    END;
    -- For whoever enqueues through the ledger's procedure.
    SET @postroom_row = LAST_INSERT_ID();
    IF is_known THEN
        UPDATE {ledger}.integration_outbox
        SET integration_type = {new.integration_type}, status = {new.status}, due_at = {new.due_at},
            attempts = {new.attempts}, max_attempts = {new.max_attempts}, created_at = {new.created_at},
            updated_at = {new.updated_at}, sent_at = {new.sent_at}, last_error = {new.last_error},
            bytes = {new.bytes}, is_replay = FALSE, settled = NULL
        WHERE id = {new.id};
        INSERT INTO {ledger}.outbox_pending_edit (integration, message_id)
        VALUES ({new.integration_type}, {new.id});
        SELECT n.seq INTO @postroom_row FROM {ledger}.integration_outbox AS n WHERE n.id = {new.id};
    END IF;
    {besides}
END$$

-- Follows a change by hand. Of the row only what was changed counts, since the ledger may know better what the row
-- cannot say.
--
-- The ledger's row is looked for without a lock, and changed by its number: to look for one that is not there, or by
-- its id, would lock, in the default isolation, the gap that producers insert into, until the editor commits. Only what
-- the editor's snapshot does not show is looked for with a lock, where it must be there: the row was open.
CREATE TRIGGER {trigger_update} AFTER UPDATE ON {table} FOR EACH ROW
IF @postroom_relay IS NULL AND ({changed} OR {old.id} <> {new.id}) THEN
  BEGIN
    DECLARE known BIGINT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET known = NULL;
    -- Not as a DEFAULT: a SELECT inside of another statement locks.
    SELECT n.seq INTO known FROM {ledger}.integration_outbox AS n WHERE n.id = {old.id};
    IF known IS NULL AND {old.status} IN ('PENDING', 'FAILED', 'DEAD') THEN
        SELECT n.seq INTO known FROM {ledger}.integration_outbox AS n WHERE n.id = {old.id} FOR UPDATE;
    END IF;
    IF {old.id} <> {new.id} THEN
        -- Another key is another message.
        DELETE FROM {ledger}.integration_outbox WHERE seq = known;
        INSERT IGNORE INTO {ledger}.integration_outbox
            (id, {key_names}, integration_type, status, due_at, attempts, max_attempts, created_at, updated_at,
             sent_at, last_error, bytes)
        VALUES ({new.id}, {new_keys}, {new.integration_type}, {new.status}, {new.due_at}, {new.attempts},
                {new.max_attempts}, {new.created_at}, {new.updated_at}, {new.sent_at}, {new.last_error}, {new.bytes});
    ELSEIF {says_otherwise} THEN
        UPDATE {ledger}.integration_outbox
        SET {followed}, updated_at = UTC_TIMESTAMP(6)
        WHERE seq = known;
        IF known IS NULL THEN
            -- It was delivered before the table had a ledger.
            INSERT IGNORE INTO {ledger}.integration_outbox
                (id, {key_names}, integration_type, status, due_at, attempts, max_attempts, created_at, updated_at,
                 sent_at, last_error, bytes)
            VALUES ({new.id}, {new_keys}, {new.integration_type}, {new.status}, {new.due_at}, {new.attempts},
                    {new.max_attempts}, {new.created_at}, {new.updated_at}, {new.sent_at}, {new.last_error},
                    {new.bytes});
        END IF;
    END IF;
  END;
END IF$$

CREATE TRIGGER {trigger_delete} AFTER DELETE ON {table} FOR EACH ROW
IF @postroom_relay IS NULL THEN
  BEGIN
    DECLARE known BIGINT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET known = NULL;
    SELECT n.seq INTO known FROM {ledger}.integration_outbox AS n WHERE n.id = {old.id};
    IF known IS NOT NULL THEN
        DELETE FROM {ledger}.integration_outbox WHERE seq = known;
    ELSEIF {old.status} IN ('PENDING', 'FAILED', 'DEAD') THEN
        DELETE FROM {ledger}.integration_outbox WHERE id = {old.id};
    END IF;
  END;
END IF$$

DELIMITER ;
