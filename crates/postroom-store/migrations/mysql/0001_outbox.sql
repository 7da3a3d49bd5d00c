-- The outbox on MariaDB and MySQL: what was said (integration_outbox), what is still to be done
-- (outbox_delivery), and who is doing it (outbox_claim); what went wrong on the way
-- (outbox_attempt), and what operators did about it (outbox_action).
--
-- A schema is a database here, and may be an application's own, so every name begins like the
-- outbox. DDL commits by itself on these servers: every statement can be repeated, so that a
-- migration that was cut off is finished by the next one. `DELIMITER` is for the command-line
-- client; Postroom reads it too.
--
-- Text is compared byte by byte and without padding: two event ids that differ in case or in a
-- trailing space are two events. That collation has one name on MariaDB and another on MySQL, so
-- it stands in comments that only the one or the other reads. MySQL before 8.0.17 has none without
-- padding: there it is the one that ignores trailing spaces. Where two are read, the last one holds.

CREATE TABLE IF NOT EXISTS integration_outbox (
    -- The row's own key: deliveries are found by it without another index.
    seq              BIGINT       NOT NULL AUTO_INCREMENT,
    id               CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT (
        -- A UUIDv7: milliseconds first, so that new ids end up side by side in the index.
        INSERT(INSERT(INSERT(INSERT(CONCAT(
            LPAD(LOWER(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)), 12, '0'),
            '7', LEFT(MD5(CONCAT(UUID_SHORT(), ' ', RAND())), 3),
            ELT(1 + FLOOR(RAND() * 4), '8', '9', 'a', 'b'),
            LEFT(MD5(CONCAT(UUID_SHORT(), ' ', RAND())), 15)
        ), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')
    ),
    source_stream_id VARCHAR(200) NOT NULL,
    source_event_id  VARCHAR(100) NOT NULL,
    integration_type VARCHAR(120) NOT NULL,
    event_type       VARCHAR(120) NOT NULL,
    -- Text and not JSON: MySQL's JSON type reorders keys and drops duplicate ones.
    payload          LONGTEXT     NOT NULL,
    headers          LONGTEXT,
    tenant_id        VARCHAR(60),
    user_id          VARCHAR(60),
    correlation_id   VARCHAR(120),
    -- Times are UTC, whatever the time zone of the session. TIMESTAMP would end in 2038.
    due_at           DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    attempts         INT          NOT NULL DEFAULT 0,
    max_attempts     INT          NOT NULL DEFAULT 10,
    status           VARCHAR(20)  NOT NULL DEFAULT 'PENDING',
    locked_at        DATETIME(6),
    locked_by        VARCHAR(120),
    created_at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    sent_at          DATETIME(6),
    last_error       TEXT,
    copy             INT          NOT NULL DEFAULT 0,
    ordering_key     VARCHAR(200),
    causation_id     VARCHAR(120),
    source           VARCHAR(120),
    schema_version   INT          NOT NULL DEFAULT 1,
    occurred_at      DATETIME(6),
    -- The token of Postroom's last write. A change that leaves it alone was made by hand.
    settled          BINARY(16),

    PRIMARY KEY (seq),
    UNIQUE KEY outbox_id (id),
    -- The fence: one event reaches one integration once per copy. Led by the event id, whose
    -- order (UUIDv7) keeps inserts local.
    UNIQUE KEY outbox_fence (source_event_id, source_stream_id, integration_type, copy),
    -- For pruning. Grows at its end only.
    KEY outbox_created (created_at),

    -- A session without strict mode writes what it can. A row that cannot be read would hold up
    -- its lane, so such rows are refused whatever the mode.
    CONSTRAINT id_is_a_uuid CHECK (
        id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
    ),
    CONSTRAINT payload_is_json CHECK (JSON_VALID(payload)),
    CONSTRAINT headers_are_json CHECK (headers IS NULL OR JSON_VALID(headers)),
    CONSTRAINT attempts_not_negative CHECK (attempts >= 0),
    CONSTRAINT max_attempts_at_least_one CHECK (max_attempts >= 1),
    -- No zero dates, and no 31st of February.
    CONSTRAINT due_at_is_a_time CHECK (
        COALESCE(DAYOFMONTH(due_at) <= DAYOFMONTH(LAST_DAY(due_at)), FALSE)
    ),
    CONSTRAINT created_at_is_a_time CHECK (
        COALESCE(DAYOFMONTH(created_at) <= DAYOFMONTH(LAST_DAY(created_at)), FALSE)
    ),
    CONSTRAINT updated_at_is_a_time CHECK (
        COALESCE(DAYOFMONTH(updated_at) <= DAYOFMONTH(LAST_DAY(updated_at)), FALSE)
    ),
    CONSTRAINT sent_at_is_a_time CHECK (
        sent_at IS NULL OR COALESCE(DAYOFMONTH(sent_at) <= DAYOFMONTH(LAST_DAY(sent_at)), FALSE)
    ),
    CONSTRAINT occurred_at_is_a_time CHECK (
        occurred_at IS NULL
        OR COALESCE(DAYOFMONTH(occurred_at) <= DAYOFMONTH(LAST_DAY(occurred_at)), FALSE)
    ),
    -- Claims live in the delivery. A dispatcher that writes CLAIMED here would deliver
    -- everything a second time, so it is stopped with an error.
    CONSTRAINT claims_live_in_delivery CHECK (status <> 'CLAIMED')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One narrow row per message that is not SENT.
CREATE TABLE IF NOT EXISTS outbox_delivery (
    seq         BIGINT       NOT NULL,
    integration VARCHAR(120) NOT NULL,
    due_at      DATETIME(6)  NOT NULL,
    claim       BINARY(16),
    rescues     INT          NOT NULL DEFAULT 0,
    bytes       INT UNSIGNED NOT NULL,
    failed      BOOLEAN      NOT NULL,
    dead        BOOLEAN      NOT NULL,
    -- Where it stands, for want of partial indexes: 0 ready, 1 rescued, 2 claimed, 3 dead.
    queue       TINYINT AS (
        CASE WHEN claim IS NOT NULL THEN 2 WHEN dead THEN 3 WHEN rescues > 0 THEN 1 ELSE 0 END
    ) STORED,

    PRIMARY KEY (seq),
    KEY outbox_delivery_queue (queue, integration, due_at, seq),
    KEY outbox_delivery_claim (claim)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row per batch taken, so that a batch is extended by one small write.
CREATE TABLE IF NOT EXISTS outbox_claim (
    token  BINARY(16)   NOT NULL,
    worker VARCHAR(120) NOT NULL,
    since  DATETIME(6)  NOT NULL,
    until  DATETIME(6)  NOT NULL,
    -- A rescued message is held alone; losing it again then counts as an attempt.
    alone  BOOLEAN      NOT NULL,

    PRIMARY KEY (token),
    KEY outbox_claim_until (until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row per failed attempt, numbered within its message. No foreign key: it would forbid
-- TRUNCATE and partitions of the messages.
CREATE TABLE IF NOT EXISTS outbox_attempt (
    seq     BIGINT          NOT NULL,
    number  INT             NOT NULL,
    at      DATETIME(6)     NOT NULL,
    took_ms BIGINT UNSIGNED NOT NULL,
    outcome VARCHAR(20)     NOT NULL,
    error   TEXT            NOT NULL,

    PRIMARY KEY (seq, number),
    CONSTRAINT outcome_known CHECK (outcome IN ('retry', 'reject', 'lost'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- What operators did: who, when, what, how many.
CREATE TABLE IF NOT EXISTS outbox_action (
    id        BIGINT          NOT NULL AUTO_INCREMENT,
    at        DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    actor     TEXT            NOT NULL,
    operation VARCHAR(20)     NOT NULL,
    target    TEXT            NOT NULL,
    messages  BIGINT UNSIGNED NOT NULL DEFAULT 0,

    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;

DELIMITER $$

-- A delivery may be there already: a data-only restore brings the deliveries itself.
CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox FOR EACH ROW
IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
    INSERT INTO outbox_delivery (seq, integration, due_at, bytes, failed, dead)
    VALUES (NEW.seq, NEW.integration_type, NEW.due_at,
            OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
            NEW.status = 'FAILED', NEW.status = 'DEAD')
    ON DUPLICATE KEY UPDATE seq = NEW.seq;
END IF$$

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
CREATE TRIGGER outbox_follow AFTER UPDATE ON integration_outbox FOR EACH ROW
IF (OLD.status <> NEW.status OR OLD.due_at <> NEW.due_at
    OR OLD.integration_type <> NEW.integration_type) AND OLD.settled <=> NEW.settled THEN
    IF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
        UPDATE outbox_delivery
        SET due_at = NEW.due_at, integration = NEW.integration_type, rescues = 0,
            failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
        WHERE seq = NEW.seq AND claim IS NULL;
        INSERT INTO outbox_delivery (seq, integration, due_at, bytes, failed, dead)
        VALUES (NEW.seq, NEW.integration_type, NEW.due_at,
                OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
                NEW.status = 'FAILED', NEW.status = 'DEAD')
        ON DUPLICATE KEY UPDATE seq = NEW.seq;
    ELSE
        DELETE FROM outbox_delivery WHERE seq = NEW.seq AND claim IS NULL;
    END IF;
END IF$$

DELIMITER ;

-- The whole truth in the columns that everyone knows; every tool reads this.
CREATE OR REPLACE VIEW outbox_messages AS
SELECT m.id, m.source_stream_id, m.source_event_id, m.integration_type, m.event_type,
       m.payload, m.headers, m.tenant_id, m.user_id, m.correlation_id,
       m.due_at, m.attempts, m.max_attempts,
       CASE WHEN d.claim IS NULL THEN m.status ELSE 'CLAIMED' END AS status,
       c.since AS locked_at, c.worker AS locked_by,
       m.created_at, m.updated_at, m.sent_at, m.last_error,
       m.seq, m.copy, m.ordering_key, m.causation_id, m.source, m.schema_version, m.occurred_at
FROM integration_outbox m
LEFT JOIN outbox_delivery d ON d.seq = m.seq
LEFT JOIN outbox_claim c ON c.token = d.claim;
