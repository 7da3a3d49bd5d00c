-- What layouts read columns with. Nothing here fails, since it stands in triggers that must not: MySQL's JSON functions
-- do on what is no JSON, and JSON_VALID itself on what is nested too deeply. Texts are compared byte by byte.
DROP FUNCTION IF EXISTS text_at;
DROP FUNCTION IF EXISTS json_of;
DROP FUNCTION IF EXISTS count_of;
DROP FUNCTION IF EXISTS time_or_null;
DROP FUNCTION IF EXISTS text_of_time;
DROP FUNCTION IF EXISTS with_state;
DROP FUNCTION IF EXISTS without_state;
DROP FUNCTION IF EXISTS ulid_of;

DELIMITER $$

-- The text at a place in a document: NULL where there is none, or a null, or the document is no JSON.
CREATE FUNCTION text_at(document LONGTEXT CHARACTER SET utf8mb4, place TEXT CHARACTER SET utf8mb4)
RETURNS LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN NULL;
    RETURN IF(JSON_TYPE(JSON_EXTRACT(document, place)) = 'NULL', NULL, JSON_UNQUOTE(JSON_EXTRACT(document, place)));
END$$

-- A text as JSON; one that is none as a JSON text, so that a list shows its row.
CREATE FUNCTION json_of(value LONGTEXT CHARACTER SET utf8mb4)
RETURNS LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN JSON_QUOTE(value);
    RETURN IF(JSON_VALID(value), value, JSON_QUOTE(value));
END$$

-- A count, and 0 for what is none.
CREATE FUNCTION count_of(value TEXT CHARACTER SET utf8mb4) RETURNS INT DETERMINISTIC NO SQL
RETURN IF(value REGEXP '^[0-9]{1,9}$', CAST(value AS SIGNED), 0)$$

-- A time as MySQL or RFC 3339 writes it, in UTC: without an offset it is UTC.
CREATE FUNCTION time_or_null(value TEXT CHARACTER SET utf8mb4) RETURNS DATETIME(6) DETERMINISTIC NO SQL
BEGIN
    DECLARE sign INT;
    DECLARE zone VARCHAR(6) CHARACTER SET utf8mb4 DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN NULL;
    IF COALESCE(value, '') NOT REGEXP '^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?$' THEN
        RETURN NULL;
    END IF;
    SET sign = LOCATE('+', value, 17) + LOCATE('-', value, 17);
    IF sign > 0 THEN
        -- Two digits of hours, and those of minutes or none.
        SET zone = REPLACE(SUBSTR(value, sign), ':', ''), value = LEFT(value, sign - 1);
    END IF;
    -- Of nine digits the first six count. CAST gives NULL for a day that is none.
    RETURN CAST(LEFT(REPLACE(REPLACE(UPPER(value), 'Z', ''), 'T', ' '), 26) AS DATETIME(6))
        - INTERVAL IF(zone = '', 0, CAST(CONCAT(LEFT(zone, 1), SUBSTR(zone, 2, 2)) AS SIGNED) * 60
                                    + CAST(CONCAT(LEFT(zone, 1), '0', SUBSTR(zone, 4, 2)) AS SIGNED)) MINUTE;
END$$

-- A time in UTC as RFC 3339 writes it, to the millisecond.
CREATE FUNCTION text_of_time(value DATETIME(6))
RETURNS VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
RETURN CONCAT(LEFT(DATE_FORMAT(value, '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z')$$

-- Delivery state inside a JSON object, at its top level or further down. What is missing on the way is made. What is no
-- object stays as it is.
CREATE FUNCTION with_state(document LONGTEXT CHARACTER SET utf8mb4, path TEXT CHARACTER SET utf8mb4,
                           state LONGTEXT CHARACTER SET utf8mb4)
RETURNS LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
BEGIN
    DECLARE place INT DEFAULT 1;
    DECLARE leg TEXT CHARACTER SET utf8mb4;
    DECLARE written LONGTEXT CHARACTER SET utf8mb4 DEFAULT document;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN document;
    IF COALESCE(JSON_TYPE(JSON_EXTRACT(document, '$')), '') <> 'OBJECT' THEN
        RETURN document;
    END IF;
    -- From one `."name"` of the path to the next.
    WHILE place < CHAR_LENGTH(path) DO
        SET place = LOCATE('"', path, place + 3), leg = LEFT(path, place);
        IF COALESCE(JSON_TYPE(JSON_EXTRACT(written, leg)), '') <> 'OBJECT' THEN
            SET written = JSON_SET(written, leg, JSON_OBJECT());
        END IF;
    END WHILE;
    SET place = 0;
    WHILE place < JSON_LENGTH(state) DO
        SET leg = CONCAT('.', JSON_EXTRACT(JSON_KEYS(state), CONCAT('$[', place, ']'))), place = place + 1;
        SET written = JSON_SET(written, CONCAT(path, leg), JSON_EXTRACT(state, CONCAT('$', leg)));
    END WHILE;
    RETURN COALESCE(written, document);
END$$

-- A document without the keys at this place that begin with `outbox_`. They are removed one by one: so numbers stay as
-- they are written, where the server keeps them so. A document may name a key several times.
CREATE FUNCTION without_state(document LONGTEXT CHARACTER SET utf8mb4, path TEXT CHARACTER SET utf8mb4)
RETURNS LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
BEGIN
    DECLARE place, tries INT DEFAULT 0;
    DECLARE leg TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE found, bare LONGTEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION RETURN document;
    SET found = JSON_KEYS(document, path), bare = document;
    WHILE place < JSON_LENGTH(found) DO
        SET leg = CONCAT('.', JSON_EXTRACT(found, CONCAT('$[', place, ']'))), place = place + 1, tries = 0;
        WHILE leg LIKE '."outbox!_%' ESCAPE '!' AND JSON_CONTAINS_PATH(bare, 'one', CONCAT(path, leg)) AND tries < 10 DO
            SET bare = COALESCE(JSON_REMOVE(bare, CONCAT(path, leg)), bare), tries = tries + 1;
        END WHILE;
    END WHILE;
    RETURN bare;
END$$

-- A uuid as the 26 characters of a ULID, which has as many bits and the same order; any other text as it is.
CREATE FUNCTION ulid_of(value TEXT CHARACTER SET utf8mb4)
RETURNS TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DETERMINISTIC NO SQL
BEGIN
    -- Five hexadecimal digits are four of a ULID; the first two of these are zeros that it does not have.
    DECLARE place INT DEFAULT 2;
    DECLARE bits VARCHAR(35) CHARACTER SET utf8mb4;
    DECLARE ulid VARCHAR(26) CHARACTER SET utf8mb4 DEFAULT '';
    IF COALESCE(value, '') NOT REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        RETURN value;
    END IF;
    SET bits = LPAD(REPLACE(value, '-', ''), 35, '0');
    WHILE place < 28 DO
        SET ulid = CONCAT(ulid, SUBSTR('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                1 + ((CAST(CONV(SUBSTR(bits, 1 + 5 * (place DIV 4), 5), 16, 10) AS UNSIGNED) >> (15 - 5 * (place MOD 4))) & 31),
                1)),
            place = place + 1;
    END WHILE;
    RETURN ulid;
END$$

DELIMITER ;
