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
--
-- `layout:` lines say whom a part is for: this outbox alone (`own`), the ledger of every table (`every`), or
-- every ledger, made anew with each layout (`made`).

-- layout: own
CREATE TABLE IF NOT EXISTS integration_outbox (
    -- The row's own key: what the ledger names is found by it without another index. It may come again,
    -- after a TRUNCATE or a restore, so whoever finds a message by it compares the id too.
    --
    -- Messages are numbered here, and not parcels as on PostgreSQL: MySQL numbers rows by an AUTO_INCREMENT
    -- column only, and a parcel holds one message and goes by its number. Producers must not write it: with
    -- INSERT IGNORE a message whose number is in use is dropped without an error. What a TRUNCATE leaves in
    -- the ledger, or a restore brings into it, `postroom reconcile` mends.
    seq              BIGINT       NOT NULL AUTO_INCREMENT
        COMMENT 'Orders fresh messages, lists, and deliveries that are due at the same time. No commit order.',
    id               CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT (
        -- A UUIDv7: milliseconds first, so that new ids end up side by side in the index.
        INSERT(INSERT(INSERT(INSERT(CONCAT(
            LPAD(LOWER(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)), 12, '0'),
            '7', LEFT(MD5(CONCAT(UUID_SHORT(), ' ', RAND())), 3),
            ELT(1 + FLOOR(RAND() * 4), '8', '9', 'a', 'b'),
            LEFT(MD5(CONCAT(UUID_SHORT(), ' ', RAND())), 15)
        ), 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')
    )
        COMMENT 'The own id of the message, a UUIDv7 unless the producer gives another. The ledger names the message by it.',
    source_stream_id VARCHAR(200) NOT NULL
        COMMENT 'The aggregate or stream it came from.',
    source_event_id  VARCHAR(100) NOT NULL
        COMMENT 'The id of the event: what receivers recognise repeats by. With the stream, the integration and the copy it is unique.',
    integration_type VARCHAR(120) NOT NULL
        COMMENT 'Where it goes, adapter:channel. Each integration is a lane of its own.',
    event_type       VARCHAR(120) NOT NULL
        COMMENT 'What happened, such as order.created.v1.',
    -- Text and not JSON: MySQL's JSON type reorders keys and drops duplicate ones.
    payload          LONGTEXT     NOT NULL
        COMMENT 'The body, JSON. One that is longer than the payload_limit of the relay makes the message DEAD.',
    headers          LONGTEXT
        COMMENT 'What goes along with the body: a JSON object, or null for none. Anything else makes the message DEAD.',
    tenant_id        VARCHAR(60)
        COMMENT 'The tenant. Its messages go to a queue of their own where the configuration says so.',
    user_id          VARCHAR(60)
        COMMENT 'Who caused it. Passed on where the sink has a place for it.',
    correlation_id   VARCHAR(120)
        COMMENT 'Ties it to a request across services. Passed on where the sink has a place for it.',
    -- Times are UTC, whatever the time zone of the session. TIMESTAMP would end in 2038.
    due_at           DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        COMMENT 'When it may be delivered, in UTC. After a failure, when it is tried again.',
    attempts         INT          NOT NULL DEFAULT 0
        COMMENT 'Failed attempts so far.',
    max_attempts     INT          NOT NULL DEFAULT 10
        COMMENT 'How many attempts may fail before it is DEAD, unless the configuration says otherwise.',
    status           VARCHAR(20)  NOT NULL DEFAULT 'PENDING'
        COMMENT 'PENDING, FAILED (to be tried again), SENT or DEAD. Never CLAIMED: see the view outbox_messages.',
    locked_at        DATETIME(6)
        COMMENT 'Not used here. The view outbox_messages shows since when a relay has held the message.',
    locked_by        VARCHAR(120)
        COMMENT 'Not used here. The view outbox_messages shows which relay holds the message.',
    created_at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        COMMENT 'When it was enqueued, in UTC.',
    updated_at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        COMMENT 'When its recorded state last changed, in UTC. Pruning of dead messages goes by it.',
    sent_at          DATETIME(6)
        COMMENT 'When it was acknowledged, in UTC. Pruning goes by it.',
    last_error       TEXT
        COMMENT 'Why the last attempt failed. Stays after a later success.',
    copy             INT          NOT NULL DEFAULT 0
        COMMENT 'Tells apart several messages of one event to one integration: each is delivered.',
    ordering_key     VARCHAR(200)
        COMMENT 'What belongs together, for sinks that group messages by a key. No lane orders by it.',
    causation_id     VARCHAR(120)
        COMMENT 'The event or command that caused it. Passed on where the sink has a place for it.',
    source           VARCHAR(120)
        COMMENT 'The module or service it came from. Passed on where the sink has a place for it.',
    schema_version   INT          NOT NULL DEFAULT 1
        COMMENT 'The version of the schema of the payload. Passed on where the sink has a place for it.',
    occurred_at      DATETIME(6)
        COMMENT 'When it happened, in UTC, where the producer says so. Delivery goes by due_at.',
    -- The token of Postroom's last write: a settlement whose answer was lost is recognised by it.
    settled          BINARY(16)
        COMMENT 'The token of the last write by Postroom.',

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
    CONSTRAINT claims_live_in_ledger CHECK (status <> 'CLAIMED')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'The messages: what was said, and what became of it. Everything that is still to be done stands in the ledger (outbox_parcel, outbox_delivery, outbox_claim). The view outbox_messages joins them.';

-- layout: every
-- Fresh messages, one row each, inserted once and deleted once. Triggers are per row on these servers, so
-- a parcel names one message.
--
-- The key is the place in the lane. `seq` gives the order, and finds the parcel of a message from its row.
-- It need not be unique: the id is in the key, so a number that comes again collides with nothing.
CREATE TABLE IF NOT EXISTS outbox_parcel (
    integration VARCHAR(120) NOT NULL
        COMMENT 'The integration: its lane.',
    seq         BIGINT       NOT NULL
        COMMENT 'The seq of the message. A lane is taken in its order.',
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL
        COMMENT 'The message.',
    -- The lag is read from it, without the messages.
    due_at      DATETIME(6)  NOT NULL
        COMMENT 'When the message was due.',
    -- A take is bounded by it, without the messages.
    bytes       INT UNSIGNED NOT NULL
        COMMENT 'The size of the content of the message.',

    PRIMARY KEY (integration, seq, message_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'Fresh messages that nobody has finished with, one row each. A delivery that names one of them outranks it.';

-- One row for every message that is delayed, failed, dead, opened again, rescued or given back.
CREATE TABLE IF NOT EXISTS outbox_delivery (
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL
        COMMENT 'The message.',
    seq         BIGINT       NOT NULL
        COMMENT 'The seq of the message. What is due at the same time is taken in its order.',
    due_at      DATETIME(6)  NOT NULL
        COMMENT 'When it is due next.',
    since       DATETIME(6)  NOT NULL
        COMMENT 'When it was due for the first time, or again after it was put off or changed by hand: what its lag counts from.',
    claim       BINARY(16)
        COMMENT 'The claim that holds it.',
    rescues     INT          NOT NULL DEFAULT 0
        COMMENT 'How often it was rescued since its last outcome.',
    -- The job of the current or next dispatch has the number after it, and needs no write to be known.
    dispatch    INT          NOT NULL DEFAULT 0
        COMMENT 'How many of its dispatches to a queue are over.',
    bytes       INT UNSIGNED NOT NULL
        COMMENT 'The size of the content of the message.',
    state       CHAR(1)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        COMMENT 'w waits, f failed and waits, d dead.',
    integration VARCHAR(120) NOT NULL
        COMMENT 'The integration: its lane.',
    -- For want of partial indexes.
    queue       TINYINT AS (
        CASE WHEN claim IS NOT NULL THEN 2 WHEN state = 'd' THEN 3 WHEN rescues > 0 THEN 1 ELSE 0 END
    ) STORED
        COMMENT 'Where it stands: 0 ready, 1 rescued, 2 claimed, 3 dead. Follows from the other columns.',

    PRIMARY KEY (message_id),
    KEY outbox_delivery_queue (queue, integration, due_at, seq),
    KEY outbox_delivery_since (integration, queue, since),
    KEY outbox_delivery_claim (claim),
    -- Lists go by it in pages.
    KEY outbox_delivery_number (seq),
    CONSTRAINT state_known CHECK (state IN ('w', 'f', 'd'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'Messages that are not SENT and not fresh: delayed, failed, dead, opened again, rescued or given back.';

-- One row per relay, kept by a heartbeat. A claim names its relay and has no time of its own: it has
-- expired when that row is missing or its time is over.
CREATE TABLE IF NOT EXISTS outbox_relay (
    id         BINARY(16)   NOT NULL
        COMMENT 'The relay, from its start to its end. No other has it, nor the same one after a restart.',
    name       VARCHAR(120) NOT NULL
        COMMENT 'The name that its claims show as their worker.',
    started_at DATETIME(6)  NOT NULL
        COMMENT 'When it sent its first heartbeat.',
    until      DATETIME(6)  NOT NULL
        COMMENT 'When its claims expire, unless there is another heartbeat.',
    version    VARCHAR(100) NOT NULL
        COMMENT 'The version of its program.',
    lanes      INT          NOT NULL
        COMMENT 'How many integrations it serves. None: the row of a single call, which goes once it has expired.',

    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'One row per relay, kept by its heartbeat.';

-- One row per batch taken. A claim on parcels names them and writes to none of them; deliveries carry the
-- token of theirs.
CREATE TABLE IF NOT EXISTS outbox_claim (
    token      BINARY(16)   NOT NULL
        COMMENT 'Names the claim. No outcome is recorded without it.',
    worker     VARCHAR(120) NOT NULL
        COMMENT 'The name of the relay that holds it.',
    since      DATETIME(6)  NOT NULL
        COMMENT 'When it was taken.',
    relay      BINARY(16)   NOT NULL
        COMMENT 'Whose it is. A claim has expired when that row is missing or its time is over.',
    alone      BOOLEAN      NOT NULL DEFAULT FALSE
        COMMENT 'A rescued message is held alone: losing it again counts as an attempt.',
    dispatched BOOLEAN      NOT NULL DEFAULT FALSE
        COMMENT 'Taken for a queue, or given up: losing it counts as no rescue.',
    -- Lanes with ';' after each, of each the bytes of its name in hexadecimal digits, ':', and number=id with
    -- ',' after each. The ids can be searched for in it.
    parcels    MEDIUMTEXT   CHARACTER SET ascii COLLATE ascii_general_ci
        COMMENT 'Its parcels, by lane, seq and message. Null when it holds deliveries.',
    lowest     BIGINT
        COMMENT 'The lowest seq of its parcels.',
    highest    BIGINT
        COMMENT 'The highest seq of its parcels.',

    PRIMARY KEY (token),
    KEY outbox_claim_relay (relay),
    -- Finds the claims on parcels among those on deliveries.
    KEY outbox_claim_parcels (lowest)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'What relays hold: one row per batch taken.';

-- How far each lane's parcels were taken. Whoever takes parcels of a lane, or makes deliveries of what
-- they name, locks its row first.
CREATE TABLE IF NOT EXISTS outbox_lane_cursor (
    integration VARCHAR(120) NOT NULL
        COMMENT 'The integration: its lane.',
    mark        BIGINT       NOT NULL DEFAULT 0
        COMMENT 'No parcel above this seq was ever taken. What committed late lies below.',
    -- Galera's nodes know nothing of each other's locks: of two transactions that write the same row, only
    -- one is let through.
    turn        BIGINT       NOT NULL DEFAULT 0
        COMMENT 'Counts who took or unpacked parcels here.',

    PRIMARY KEY (integration)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'How far the parcels of each lane were taken. Its row is locked by whoever takes there.';

-- Changes by hand of messages. Whoever holds the lane that a message had before follows them.
CREATE TABLE IF NOT EXISTS outbox_pending_edit (
    id          BIGINT       NOT NULL AUTO_INCREMENT
        COMMENT 'Counts up.',
    integration VARCHAR(120) NOT NULL
        COMMENT 'The lane that the message was in before the change.',
    message_id  CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL
        COMMENT 'The message.',

    PRIMARY KEY (integration, id),
    KEY outbox_pending_edit_id (id),
    KEY outbox_pending_edit_message (message_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'Changes by hand of messages, to be followed by whoever takes in their lane.';

-- One row per failed attempt, numbered within its message. It belongs to the message whose id it carries:
-- numbers of messages come again. No foreign key: it would forbid TRUNCATE and partitions of the messages.
CREATE TABLE IF NOT EXISTS outbox_attempt (
    seq        BIGINT          NOT NULL
        COMMENT 'The seq of the message.',
    number     INT             NOT NULL
        COMMENT 'Counts the failed attempts of its message. Only the latest are kept.',
    message_id CHAR(36)        CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL
        COMMENT 'The message. Another message may have had the same seq.',
    at         DATETIME(6)     NOT NULL
        COMMENT 'When the failure was recorded.',
    took_ms    BIGINT UNSIGNED NOT NULL
        COMMENT 'How long the attempt took, in milliseconds.',
    outcome    VARCHAR(20)     NOT NULL
        COMMENT 'retry: it may be tried again. reject: it would fail again. lost: its relay died with this message alone in hand.',
    error      TEXT            NOT NULL
        COMMENT 'Why it failed.',
    response   TEXT
        COMMENT 'What the receiver answered, where its integration keeps that.',

    PRIMARY KEY (seq, number),
    CONSTRAINT outcome_known CHECK (outcome IN ('retry', 'reject', 'lost'))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'Failed attempts, as long as their message.';

-- What operators did: who, when, what, how many.
CREATE TABLE IF NOT EXISTS outbox_action (
    id        BIGINT          NOT NULL AUTO_INCREMENT
        COMMENT 'Counts up: later operations have higher numbers.',
    at        DATETIME(6)     NOT NULL DEFAULT (UTC_TIMESTAMP(6))
        COMMENT 'When it began.',
    actor     TEXT            NOT NULL
        COMMENT 'Who did it.',
    operation VARCHAR(20)     NOT NULL
        COMMENT 'What was done: redrive, replay, release, cancel, prune or reconcile.',
    target    TEXT            NOT NULL
        COMMENT 'To which messages: an id, or the filter in words.',
    messages  BIGINT UNSIGNED NOT NULL DEFAULT 0
        COMMENT 'How many messages it has changed.',

    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'What operators did, and to how many messages.';

-- The events of messages that were delivered and pruned, where retention asks for that: an event that comes
-- again is not delivered again. By 128 bits of a SHA-256, so that the table stays narrow. A take looks here:
-- a trigger that did would lock, in the default isolation, the gap that relays write to.
CREATE TABLE IF NOT EXISTS outbox_remembered (
    event BINARY(16)  NOT NULL
        COMMENT '128 bits of a hash of event id, stream, integration and copy.',
    until DATETIME(6) NOT NULL
        COMMENT 'When it is forgotten.',

    PRIMARY KEY (event),
    KEY outbox_remembered_until (until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'Events of delivered messages that are pruned: the same event is not delivered again.';

-- How far those have come who bring messages from elsewhere. A position moves in the transaction that
-- writes the messages up to it, so that none is written twice or left out after a crash.
CREATE TABLE IF NOT EXISTS outbox_checkpoint (
    name       VARCHAR(120) NOT NULL
        COMMENT 'Whose position it is.',
    position   TEXT         NOT NULL
        COMMENT 'How far it has come. Only the reader knows what it means.',
    updated_at DATETIME(6)  NOT NULL
        COMMENT 'When it last moved.',

    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'How far each reader that brings messages from elsewhere has come.';

-- layout: own
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

-- layout: made
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
