-- Enqueues from any language, inside the caller's transaction, as the layout writes a row. A second call for the same
-- row returns the first one's key and changes nothing.
DROP PROCEDURE IF EXISTS enqueue;
-- What does not fit is refused here, and not cut.
{strict};

DELIMITER $$

CREATE PROCEDURE enqueue(
    IN p_integration VARCHAR(120) CHARACTER SET utf8mb4, IN p_event_type VARCHAR(120) CHARACTER SET utf8mb4,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4, IN p_stream VARCHAR(200) CHARACTER SET utf8mb4,
    IN p_event_id VARCHAR(100) CHARACTER SET utf8mb4, IN p_headers LONGTEXT CHARACTER SET utf8mb4,
    IN p_tenant VARCHAR(60) CHARACTER SET utf8mb4, IN p_user_id VARCHAR(60) CHARACTER SET utf8mb4,
    IN p_correlation VARCHAR(120) CHARACTER SET utf8mb4, IN p_due_at DATETIME(6), IN p_max_attempts INT,
    IN p_ordering_key VARCHAR(200) CHARACTER SET utf8mb4, IN p_causation VARCHAR(120) CHARACTER SET utf8mb4,
    IN p_source VARCHAR(120) CHARACTER SET utf8mb4, IN p_schema_version INT, IN p_occurred_at DATETIME(6),
    IN p_copy INT
)
MODIFIES SQL DATA
BEGIN
    DECLARE goes VARCHAR(120) CHARACTER SET utf8mb4;
    DECLARE state VARCHAR(20) CHARACTER SET utf8mb4;
    DECLARE why VARCHAR(128) CHARACTER SET utf8mb4;
    DECLARE event VARCHAR(100) CHARACTER SET utf8mb4 DEFAULT COALESCE(p_event_id, CAST(UUID() AS CHAR));
    DECLARE at DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
    DECLARE is_duplicate BOOLEAN DEFAULT FALSE;
    IF COALESCE(p_copy, 0) <> 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'message refused: a row has no place for `copy`: leave it out';
    END IF;
    {lost}
    SET p_stream = COALESCE(p_stream, event), p_due_at = COALESCE(p_due_at, at);
    SET p_max_attempts = COALESCE(p_max_attempts, 10), p_schema_version = COALESCE(p_schema_version, 1);
    SET @postroom_row = NULL;
    BEGIN
        DECLARE CONTINUE HANDLER FOR 1062 SET is_duplicate = TRUE;
        INSERT INTO {table} ({columns})
        VALUES ({values});
    END;
    IF is_duplicate THEN
        SET @postroom_row = (SELECT m.seq FROM outbox_row AS m WHERE {same_event} ORDER BY m.seq DESC LIMIT 1);
        IF @postroom_row IS NULL THEN
            SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062,
                MESSAGE_TEXT = 'refused as a duplicate by a unique index of the table, and no row has this event id';
        END IF;
    END IF;
    SELECT m.integration_type, m.status INTO goes, state FROM outbox_row AS m WHERE m.seq = @postroom_row;
    IF NOT (goes <=> p_integration) OR (NOT is_duplicate AND state <> 'PENDING') THEN
        IF NOT is_duplicate THEN
            -- In two steps: the trigger of the table deletes from the ledger.
            SELECT {key_names} INTO {key_variables} FROM integration_outbox AS n WHERE n.seq = @postroom_row;
            DELETE FROM {table} WHERE {same_key};
        END IF;
        SET why = IF(goes <=> p_integration,
                     LEFT(CONCAT('message refused: as the layout writes it, its row would be ', state, ' and not delivered'), 128),
                     LEFT(CONCAT('message refused: the layout sends this row to ', goes, '; name that, or add a route'), 128));
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = why;
    END IF;
    SELECT m.name AS id, NOT is_duplicate AS is_new FROM outbox_row AS m WHERE m.seq = @postroom_row;
END$$

DELIMITER ;

{mode};
