-- The outbox on MariaDB and MySQL: what was said (integration_outbox), and the ledger beside it, which
-- holds what is still to be done: parcels of fresh messages (outbox_parcel), a delivery for every other
-- message that is not SENT (outbox_delivery), the claims on both (outbox_claim), and the cursor of each
-- lane (outbox_lane_cursor).
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
    -- The row's own key: what the ledger names is found by it without another index. It may come again,
    -- after a TRUNCATE or a restore, so whoever finds a message by it compares the id too.
    --
    -- Messages are numbered here, and not parcels as on PostgreSQL: MySQL numbers rows by an AUTO_INCREMENT
    -- column only, and a parcel holds one message and goes by its number. Producers must not write it: with
    -- INSERT IGNORE a message whose number is in use is dropped without an error. What a TRUNCATE leaves in
    -- the ledger, or a restore brings into it, `postroom reconcile` mends.
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
    -- The token of Postroom's last write: a settlement whose answer was lost is recognised by it.
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
    -- Claims live in the ledger. A dispatcher that writes CLAIMED here would deliver
    -- everything a second time, so it is stopped with an error.
    CONSTRAINT claims_live_in_delivery CHECK (status <> 'CLAIMED')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Fresh messages, one row each, inserted once and deleted once. Triggers are per row on these servers, so
-- a parcel names one message.
--
-- The key is the place in the lane. `seq` gives the order, and finds the parcel of a message from its row.
-- It need not be unique: the id is in the key, so a number that comes again collides with nothing.
CREATE TABLE IF NOT EXISTS outbox_parcel (
    integration VARCHAR(120) NOT NULL,
    seq         BIGINT       NOT NULL,
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    -- When it was due: the lag is read from it, without the messages.
    due_at      DATETIME(6)  NOT NULL,
    -- The size of its content: a take is bounded by it, without the messages.
    bytes       INT UNSIGNED NOT NULL,

    PRIMARY KEY (integration, seq, message_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row for every message that is delayed, failed, dead, opened again, rescued or given back.
CREATE TABLE IF NOT EXISTS outbox_delivery (
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    seq         BIGINT       NOT NULL,
    due_at      DATETIME(6)  NOT NULL,
    -- When it was due for the first time, or again after it was put off or changed by hand: what its lag
    -- counts from.
    since       DATETIME(6)  NOT NULL,
    -- The claim that holds it.
    claim       BINARY(16),
    -- How often it was rescued since its last outcome.
    rescues     INT          NOT NULL DEFAULT 0,
    -- How many of its dispatches to a queue are over: the job of the current or next one has the number
    -- after it, and needs no write to be known.
    dispatch    INT          NOT NULL DEFAULT 0,
    bytes       INT UNSIGNED NOT NULL,
    -- w waits, f failed and waits, d dead.
    state       CHAR(1)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    integration VARCHAR(120) NOT NULL,
    -- Where it stands, for want of partial indexes: 0 ready, 1 rescued, 2 claimed, 3 dead.
    queue       TINYINT AS (
        CASE WHEN claim IS NOT NULL THEN 2 WHEN state = 'd' THEN 3 WHEN rescues > 0 THEN 1 ELSE 0 END
    ) STORED,

    PRIMARY KEY (message_id),
    KEY outbox_delivery_queue (queue, integration, due_at, seq),
    KEY outbox_delivery_since (integration, queue, since),
    KEY outbox_delivery_claim (claim),
    -- Lists go by it in pages.
    KEY outbox_delivery_number (seq),
    CONSTRAINT state_known CHECK (state IN ('w', 'f', 'd'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row per relay, kept by a heartbeat. A claim names its relay and has no time of its own: it has
-- expired when that row is missing or its time is over.
CREATE TABLE IF NOT EXISTS outbox_relay (
    id         BINARY(16)   NOT NULL,
    name       VARCHAR(120) NOT NULL,
    started_at DATETIME(6)  NOT NULL,
    until      DATETIME(6)  NOT NULL,
    version    VARCHAR(100) NOT NULL,
    -- How many integrations it serves. None: the row of a single call, which goes once it has expired.
    lanes      INT          NOT NULL,

    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row per batch taken. A claim on parcels names them and writes to none of them; deliveries carry the
-- token of theirs.
CREATE TABLE IF NOT EXISTS outbox_claim (
    token      BINARY(16)   NOT NULL,
    worker     VARCHAR(120) NOT NULL,
    since      DATETIME(6)  NOT NULL,
    relay      BINARY(16)   NOT NULL,
    -- A rescued message is held alone; losing it again then counts as an attempt.
    alone      BOOLEAN      NOT NULL DEFAULT FALSE,
    -- Taken for a queue: losing it counts as no rescue.
    dispatched BOOLEAN      NOT NULL DEFAULT FALSE,
    -- Its parcels, NULL when it holds deliveries: lanes with ';' after each, of each the bytes of its name
    -- in hexadecimal digits, ':', and number=id with ',' after each. The ids can be searched for in it.
    parcels    MEDIUMTEXT   CHARACTER SET ascii COLLATE ascii_general_ci,
    -- The numbers between which its parcels lie.
    lowest     BIGINT,
    highest    BIGINT,

    PRIMARY KEY (token),
    KEY outbox_claim_relay (relay),
    -- Finds the claims on parcels among those on deliveries.
    KEY outbox_claim_parcels (lowest)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- How far each lane's parcels were taken. Whoever takes parcels of a lane, or makes deliveries of what
-- they name, locks its row first.
CREATE TABLE IF NOT EXISTS outbox_lane_cursor (
    integration VARCHAR(120) NOT NULL,
    -- No parcel above it was ever taken. What committed late lies below, and is swept up.
    mark        BIGINT       NOT NULL DEFAULT 0,
    -- Counts who took or unpacked parcels here. Galera's nodes know nothing of each other's locks: of two
    -- transactions that write the same row, only one is let through.
    turn        BIGINT       NOT NULL DEFAULT 0,

    PRIMARY KEY (integration)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Changes by hand of messages. Whoever holds the lane that a message had before follows them.
CREATE TABLE IF NOT EXISTS outbox_pending_edit (
    id          BIGINT       NOT NULL AUTO_INCREMENT,
    integration VARCHAR(120) NOT NULL,
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,

    PRIMARY KEY (integration, id),
    KEY outbox_pending_edit_id (id),
    KEY outbox_pending_edit_message (message_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- One row per failed attempt, numbered within its message. It belongs to the message whose id it carries:
-- numbers of messages come again. No foreign key: it would forbid TRUNCATE and partitions of the messages.
CREATE TABLE IF NOT EXISTS outbox_attempt (
    seq        BIGINT          NOT NULL,
    number     INT             NOT NULL,
    message_id CHAR(36)        CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    at         DATETIME(6)     NOT NULL,
    took_ms    BIGINT UNSIGNED NOT NULL,
    outcome    VARCHAR(20)     NOT NULL,
    error      TEXT            NOT NULL,
    -- What the receiver answered, where its integration keeps that.
    response   TEXT,

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

-- The events of messages that were delivered and pruned, where retention asks for that: an event that comes
-- again is not delivered again. By 128 bits of a SHA-256, so that the table stays narrow. A take looks here:
-- a trigger that did would lock, in the default isolation, the gap that relays write to.
CREATE TABLE IF NOT EXISTS outbox_remembered (
    event BINARY(16)  NOT NULL,
    -- When it is forgotten.
    until DATETIME(6) NOT NULL,

    PRIMARY KEY (event),
    KEY outbox_remembered_until (until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- How far those have come who bring messages from elsewhere. A position moves in the transaction that
-- writes the messages up to it, so that none is written twice or left out after a crash.
CREATE TABLE IF NOT EXISTS outbox_checkpoint (
    name       VARCHAR(120) NOT NULL,
    position   TEXT         NOT NULL,
    updated_at DATETIME(6)  NOT NULL,

    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;

DELIMITER $$

-- Fresh is what is PENDING and due within a second: applications set due times by clocks of their own.
-- UTC_TIMESTAMP is when the INSERT began, not its transaction. A parcel or delivery of the same message
-- may be there: a restore of the data alone brings it, or a message of the same id left it.
CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox FOR EACH ROW
IF NEW.status = 'PENDING' AND NEW.due_at <= UTC_TIMESTAMP(6) + INTERVAL 1 SECOND THEN
    INSERT INTO outbox_parcel (integration, seq, message_id, due_at, bytes)
    VALUES (NEW.integration_type, NEW.seq, NEW.id, NEW.due_at,
            OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0))
    ON DUPLICATE KEY UPDATE seq = NEW.seq;
ELSEIF NEW.status IN ('PENDING', 'FAILED', 'DEAD') THEN
    INSERT INTO outbox_delivery (message_id, seq, integration, due_at, since, bytes, state)
    VALUES (NEW.id, NEW.seq, NEW.integration_type, NEW.due_at, NEW.due_at,
            OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0),
            CASE NEW.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END)
    ON DUPLICATE KEY UPDATE
        seq = IF(claim IS NULL, NEW.seq, seq),
        integration = IF(claim IS NULL, NEW.integration_type, integration),
        due_at = IF(claim IS NULL, NEW.due_at, due_at),
        since = IF(claim IS NULL, NEW.due_at, since),
        state = IF(claim IS NULL,
                   CASE NEW.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END, state);
END IF$$

-- Leaves a note of what is changed by hand, and touches nothing else: to look for a delivery that is not
-- there would lock, in the default isolation, the gap that relays insert deliveries into, until the
-- editor commits. Whoever takes a message reads what it says, so a change counts before its note is
-- followed.
--
-- Postroom's own writes are told from changes by hand by a variable of its sessions. No column can do
-- that: whoever saves a whole row that was read a while ago writes all of them.
CREATE TRIGGER outbox_follow AFTER UPDATE ON integration_outbox FOR EACH ROW
IF @postroom_relay IS NULL AND (OLD.status <> NEW.status OR OLD.due_at <> NEW.due_at
    OR OLD.integration_type <> NEW.integration_type) THEN
    INSERT INTO outbox_pending_edit (integration, message_id) VALUES (OLD.integration_type, NEW.id);
END IF$$

DELIMITER ;

-- The whole truth in the columns that everyone knows; every tool reads this. A message in a parcel is
-- held by the claim that names it. A parcel is in the lane that its message had when it was inserted, or
-- in one that a pending edit remembers.
CREATE OR REPLACE VIEW outbox_messages AS
SELECT m.id, m.source_stream_id, m.source_event_id, m.integration_type, m.event_type,
       m.payload, m.headers, m.tenant_id, m.user_id, m.correlation_id,
       m.due_at, m.attempts, m.max_attempts,
       CASE WHEN c.token IS NULL THEN m.status ELSE 'CLAIMED' END AS status,
       c.since AS locked_at, c.worker AS locked_by,
       m.created_at, m.updated_at, m.sent_at, m.last_error,
       m.seq, m.copy, m.ordering_key, m.causation_id, m.source, m.schema_version, m.occurred_at
FROM integration_outbox AS m
LEFT JOIN outbox_delivery AS d ON d.message_id = m.id
LEFT JOIN outbox_parcel AS p
    ON p.integration = m.integration_type AND p.seq = m.seq AND p.message_id = m.id
LEFT JOIN outbox_claim AS c ON c.token = CASE
    WHEN d.message_id IS NOT NULL THEN d.claim
    WHEN p.message_id IS NOT NULL OR EXISTS (
        -- Not in an ON clause: MySQL would not know m there.
        SELECT 1 FROM outbox_pending_edit AS e, outbox_parcel AS q
        WHERE e.message_id = m.id
          AND q.integration = e.integration AND q.seq = m.seq AND q.message_id = m.id
    ) THEN (
        SELECT h.token FROM outbox_claim AS h
        WHERE h.lowest IS NOT NULL AND m.seq BETWEEN h.lowest AND h.highest
          AND LOCATE(m.id, h.parcels) > 0
        LIMIT 1
    )
END;
