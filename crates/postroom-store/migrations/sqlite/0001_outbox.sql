-- The outbox on SQLite: what was said (integration_outbox), and the ledger beside it, which holds what is
-- still to be done: a parcel for every fresh message, a delivery for every other message that is not
-- SENT, the claims on both, and the cursor of each lane.
--
-- SQLite has no schemas, so every name here begins like the outbox: the file may be an
-- application's own. Everything works with SQLite 3.35, since the triggers and defaults run in
-- whatever program writes the row. Times in the ledger are milliseconds since 1970.

-- layout: own
CREATE TABLE integration_outbox (
    id               TEXT NOT NULL UNIQUE COLLATE NOCASE DEFAULT (
        -- A UUIDv7: milliseconds first, so that new ids end up side by side in the index.
        printf('%08x', CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) >> 16)
        || '-' ||
        printf('%04x', CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) & 65535)
        || '-7' || substr(lower(hex(randomblob(2))), 2)
        || '-' || substr('89ab', (random() & 3) + 1, 1) || substr(lower(hex(randomblob(2))), 2)
        || '-' || lower(hex(randomblob(6)))
    ),
    source_stream_id TEXT NOT NULL,
    -- What receivers recognise repeats by.
    source_event_id  TEXT NOT NULL,
    -- Where it goes, adapter:channel. Each integration is a lane of its own.
    integration_type TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    payload          TEXT NOT NULL,
    -- What goes along with the body: a JSON object, or null for none.
    headers          TEXT,
    -- Its messages go to a queue of their own where the configuration says so.
    tenant_id        TEXT,
    -- Who caused it.
    user_id          TEXT,
    -- Ties it to a request across services.
    correlation_id   TEXT,
    -- Times are text that julianday() understands, UTC unless they name a zone. This is when it may be
    -- delivered; after a failure, when it is tried again.
    due_at           TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- Failed attempts so far, and how many may fail before it is DEAD, unless the configuration says
    -- otherwise.
    attempts         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 10,
    -- PENDING, FAILED (to be tried again), SENT or DEAD. Never CLAIMED: see the view outbox_messages.
    status           TEXT NOT NULL DEFAULT 'PENDING',
    -- Not used here. The view outbox_messages shows since when a relay has held the message, and which.
    locked_at        TEXT,
    locked_by        TEXT,
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- When its recorded state last changed.
    updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at          TEXT,
    -- Why the last attempt failed. Stays after a later success.
    last_error       TEXT,
    -- The row's own key: a parcel finds its message by it without another index. It orders fresh messages,
    -- lists, and deliveries that are due at the same time. AUTOINCREMENT, so that the number of a deleted
    -- message is not given to another.
    --
    -- Messages are numbered here, and not parcels as on PostgreSQL: SQLite numbers rows by their rowid
    -- only, and a parcel holds one message and goes by its number. Producers must not write it: with
    -- ON CONFLICT DO NOTHING a message whose number is in use is dropped without an error. What emptying
    -- the table leaves in the ledger, or a restore brings into it, `postroom reconcile` mends.
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Tells apart several messages of one event to one integration: each is delivered.
    copy             INTEGER NOT NULL DEFAULT 0,
    -- What belongs together, for sinks that group messages by a key. No lane orders by it.
    ordering_key     TEXT,
    -- The event or command that caused it.
    causation_id     TEXT,
    -- The module or service it came from.
    source           TEXT,
    -- The version of the payload's schema.
    schema_version   INTEGER NOT NULL DEFAULT 1,
    -- When it happened, where the producer says so. Delivery goes by due_at.
    occurred_at      TEXT,
    -- The token of Postroom's last write: a settlement whose answer was lost is recognised by it.
    settled          TEXT,

    -- SQLite keeps what it is given. These are the types of the other databases: a row that
    -- cannot be read would hold up its lane.
    CONSTRAINT id_is_a_uuid CHECK (
        typeof(id) = 'text' AND id LIKE '________-____-____-____-____________'
        AND length(replace(id, '-', '')) = 32 AND replace(id, '-', '') NOT GLOB '*[^0-9A-Fa-f]*'
    ),
    CONSTRAINT source_stream_id_length CHECK (length(source_stream_id) <= 200),
    CONSTRAINT source_event_id_length CHECK (length(source_event_id) <= 100),
    CONSTRAINT integration_type_length CHECK (length(integration_type) <= 120),
    CONSTRAINT event_type_length CHECK (length(event_type) <= 120),
    CONSTRAINT tenant_id_length CHECK (length(tenant_id) <= 60),
    CONSTRAINT user_id_length CHECK (length(user_id) <= 60),
    CONSTRAINT correlation_id_length CHECK (length(correlation_id) <= 120),
    CONSTRAINT causation_id_length CHECK (length(causation_id) <= 120),
    CONSTRAINT source_length CHECK (length(source) <= 120),
    CONSTRAINT ordering_key_length CHECK (length(ordering_key) <= 200),
    CONSTRAINT status_length CHECK (length(status) <= 20),
    CONSTRAINT payload_is_json CHECK (typeof(payload) = 'text' AND json_valid(payload)),
    CONSTRAINT headers_are_json CHECK (
        headers IS NULL OR (typeof(headers) = 'text' AND json_valid(headers))
    ),
    CONSTRAINT due_at_is_a_time CHECK (julianday(due_at) IS NOT NULL),
    CONSTRAINT created_at_is_a_time CHECK (julianday(created_at) IS NOT NULL),
    CONSTRAINT updated_at_is_a_time CHECK (julianday(updated_at) IS NOT NULL),
    CONSTRAINT sent_at_is_a_time CHECK (sent_at IS NULL OR julianday(sent_at) IS NOT NULL),
    CONSTRAINT occurred_at_is_a_time CHECK (
        occurred_at IS NULL OR julianday(occurred_at) IS NOT NULL
    ),
    CONSTRAINT attempts_not_negative CHECK (
        typeof(attempts) = 'integer' AND attempts BETWEEN 0 AND 2147483647
    ),
    CONSTRAINT max_attempts_at_least_one CHECK (
        typeof(max_attempts) = 'integer' AND max_attempts BETWEEN 1 AND 2147483647
    ),
    CONSTRAINT copy_is_a_number CHECK (
        typeof(copy) = 'integer' AND copy BETWEEN -2147483648 AND 2147483647
    ),
    CONSTRAINT schema_version_is_a_number CHECK (
        typeof(schema_version) = 'integer' AND schema_version BETWEEN -2147483648 AND 2147483647
    ),
    -- Claims live in the ledger. A dispatcher that writes CLAIMED here would deliver
    -- everything a second time, so it is stopped with an error.
    CONSTRAINT claims_live_in_ledger CHECK (status <> 'CLAIMED')
);

-- The fence: one event reaches one integration once per copy.
CREATE UNIQUE INDEX outbox_fence ON integration_outbox
    (source_event_id, source_stream_id, integration_type, copy);
-- For pruning. Grows at its end only, as messages are sent.
CREATE INDEX outbox_sent ON integration_outbox (coalesce(sent_at, created_at))
    WHERE status = 'SENT';

-- layout: every
-- Fresh messages: one row each, inserted once and deleted once, and never updated. *Fresh* is a PENDING
-- message that is due within a second of its INSERT. Parcels of PostgreSQL name up to 64 messages of one
-- statement; triggers of SQLite see one row at a time, so these name one.
--
-- The key is the row: the lane, then the order in it. `seq` is the message's number. It need not be
-- unique, since the id is part of the key: a number that comes again after somebody has emptied the table
-- collides with nothing.
CREATE TABLE outbox_parcel (
    integration TEXT    NOT NULL,
    -- The message's number. A lane is taken in its order.
    seq         INTEGER NOT NULL,
    message_id  TEXT    NOT NULL COLLATE NOCASE,
    -- The take has no use for it. The backlog's lag does: without it, counting a backlog would read every
    -- message of it.
    due_at      INTEGER NOT NULL,
    PRIMARY KEY (integration, seq, message_id)
) WITHOUT ROWID;

-- One row for every message that is delayed, failed, dead, opened again, rescued or given back. It
-- outranks a parcel that names the same message. Other than on PostgreSQL it does not hold the size of the
-- content: a take reads the message's row anyway.
CREATE TABLE outbox_delivery (
    message_id  TEXT    NOT NULL PRIMARY KEY COLLATE NOCASE,
    -- The message's number: it orders lists, and messages that are due at the same time.
    seq         INTEGER NOT NULL,
    -- When it is due next.
    due_at      INTEGER NOT NULL,
    -- When it was due for the first time, or again after it was put off or changed by hand: what its lag
    -- counts from.
    since       INTEGER NOT NULL,
    -- The claim that holds it.
    claim       TEXT,
    -- How often it was rescued since its last outcome.
    rescues     INTEGER NOT NULL DEFAULT 0,
    -- How many of its dispatches to a queue are over. The job of the current or next one has the number
    -- after it, and needs no write to be known.
    dispatch    INTEGER NOT NULL DEFAULT 0,
    -- w waits, f failed and waits, d dead.
    state       TEXT    NOT NULL,
    integration TEXT    NOT NULL,
    /*foreign:-- Failed attempts and why the last one failed, where the row cannot say so.
    attempts    INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT,
    -- Whether its row was opened again to be replayed.
    is_replay   INTEGER NOT NULL DEFAULT 0,*/

    CONSTRAINT state_known CHECK (state IN ('w', 'f', 'd'))
) WITHOUT ROWID;

CREATE INDEX outbox_delivery_lane ON outbox_delivery (integration, due_at, seq)
    WHERE claim IS NULL AND state <> 'd' AND rescues = 0;
CREATE INDEX outbox_delivery_rescued ON outbox_delivery (integration, due_at, seq)
    WHERE claim IS NULL AND state <> 'd' AND rescues > 0;
CREATE INDEX outbox_delivery_since ON outbox_delivery (integration, since)
    WHERE claim IS NULL AND state <> 'd';
CREATE INDEX outbox_delivery_dead ON outbox_delivery (seq)
    WHERE state = 'd';
CREATE INDEX outbox_delivery_claimed ON outbox_delivery (claim)
    WHERE claim IS NOT NULL;
CREATE INDEX outbox_delivery_number ON outbox_delivery (seq);

-- One row per relay, kept by a heartbeat. A claim names its relay and has no time of its own.
CREATE TABLE outbox_relay (
    -- The relay, from its start to its end. No other has it, nor the same one after a restart.
    id         TEXT    PRIMARY KEY,
    -- The name that its claims show as their worker.
    name       TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    -- When its claims expire, unless there is another heartbeat.
    until      INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    -- How many integrations it serves. None: the row of a single call, which goes once it has expired.
    lanes      INTEGER NOT NULL
) WITHOUT ROWID;

-- One row per batch taken. It names parcels, which are not written to, or is named by deliveries. Not WITHOUT
-- ROWID like the others: an index of such a table leads to the row at once, and the long list of parcels
-- would be read for numbers that the index has.
CREATE TABLE outbox_claim (
    -- Names the claim. No outcome is recorded without it.
    token      TEXT    NOT NULL PRIMARY KEY,
    -- The name of the relay that holds it, and since when.
    worker     TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    -- Whose it is. A claim has expired when that row is missing or its time is over.
    relay      TEXT    NOT NULL,
    -- A rescued message is held alone; losing it again then counts as an attempt.
    alone      INTEGER NOT NULL DEFAULT 0,
    -- Taken for a queue, or given up: losing it counts as no rescue.
    dispatched INTEGER NOT NULL DEFAULT 0,
    -- The parcels that it holds, as a JSON array of [integration, seq, id]; null when it holds deliveries.
    -- Ids are in lower case. An entry whose parcel is gone is settled.
    parcels    TEXT,
    -- The lowest and the highest number of those parcels: few claims need to be searched for an id.
    lowest     INTEGER,
    highest    INTEGER
);

CREATE INDEX outbox_claim_relay ON outbox_claim (relay);
CREATE INDEX outbox_claim_parcels ON outbox_claim (lowest, highest);

-- How far each lane's parcels were taken: no parcel above the mark was ever taken. A lane has its row from
-- its first claim on parcels on.
CREATE TABLE outbox_lane_cursor (
    integration TEXT    PRIMARY KEY,
    -- No parcel above this number was ever taken.
    mark        INTEGER NOT NULL
) WITHOUT ROWID;

-- What went wrong before, and who did what.

-- One row per failed attempt, written with the failure. Numbered within its message, so that the
-- key finds a message's attempts in order. They go with their message.
CREATE TABLE outbox_attempt (
    message_id TEXT    NOT NULL COLLATE NOCASE,
    -- Counts the failed attempts of its message. Only the latest are kept.
    number     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    took_ms    INTEGER NOT NULL,
    -- retry: it may be tried again. reject: it would fail again. lost: its relay died with this message
    -- alone in hand.
    outcome    TEXT    NOT NULL,
    error      TEXT    NOT NULL,
    -- What the receiver answered, where its integration keeps that.
    response   TEXT,
    PRIMARY KEY (message_id, number),
    CONSTRAINT outcome_known CHECK (outcome IN ('retry', 'reject', 'lost'))
) WITHOUT ROWID;

-- One row per operation. `messages` grows with what it changes, in the same transactions.
CREATE TABLE outbox_action (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    -- redrive, replay, release, cancel, prune or reconcile.
    operation TEXT    NOT NULL,
    -- To which messages: an id, or the filter in words.
    target    TEXT    NOT NULL,
    -- How many messages it has changed.
    messages  INTEGER NOT NULL DEFAULT 0
);

-- The events of messages that were delivered and pruned, where retention asks for that: an event that comes
-- again is not delivered again. SQLite has no hash that every program's triggers could call, so the key is
-- the fence itself.
CREATE TABLE outbox_remembered (
    source_event_id  TEXT    NOT NULL,
    source_stream_id TEXT    NOT NULL,
    integration_type TEXT    NOT NULL,
    copy             INTEGER NOT NULL,
    -- When it is forgotten.
    until            INTEGER NOT NULL,
    PRIMARY KEY (source_event_id, source_stream_id, integration_type, copy)
) WITHOUT ROWID;
CREATE INDEX outbox_remembered_until ON outbox_remembered (until);

-- How far those have come who bring messages from elsewhere. A position moves in the transaction that
-- writes the messages up to it, so that none is written twice or left out after a crash.
CREATE TABLE outbox_checkpoint (
    name       TEXT    PRIMARY KEY,
    -- Only the reader knows what it means.
    position   TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,

    CONSTRAINT name_length CHECK (length(name) <= 120)
) WITHOUT ROWID;

-- layout: own
-- Nothing here relies on a conflict rule: the producer's own, such as OR IGNORE, overrides it.
CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox
WHEN NEW.status IN ('PENDING', 'FAILED', 'DEAD')
BEGIN
    -- A delivery may be there: a restore brings it, or a message of the same id left it. One that is
    -- claimed is left to its attempt.
    UPDATE outbox_delivery
    SET seq = NEW.seq, integration = NEW.integration_type,
        due_at = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        since = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        state = CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END
    WHERE message_id = NEW.id AND claim IS NULL;

    -- `now` is the time of this statement, and not of the transaction's beginning. Applications set due
    -- times by clocks of their own, so a second more counts as now.
    INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
    SELECT NEW.id, NEW.seq, CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END,
           NEW.integration_type
    WHERE (NEW.status <> 'PENDING'
           OR julianday(NEW.due_at) > julianday('now', '+1 second'))
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = NEW.id);

    -- What has no delivery by now is fresh. The same parcel may be there: a restore brings it.
    INSERT INTO outbox_parcel (integration, seq, message_id, due_at)
    SELECT NEW.integration_type, NEW.seq, NEW.id,
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
    WHERE NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = NEW.id)
      AND NOT EXISTS (SELECT 1 FROM outbox_parcel AS p
                      WHERE p.integration = NEW.integration_type AND p.seq = NEW.seq
                        AND p.message_id = NEW.id);

    -- What was delivered and pruned is over at once, and stays visible; `outbox_follow` takes it out of the
    -- ledger. A replay is meant to be delivered again.
    UPDATE integration_outbox
    SET status = 'SENT', sent_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
        last_error = 'not delivered: the same event was delivered before'
    WHERE seq = NEW.seq
      AND EXISTS (SELECT 1 FROM outbox_remembered AS r
                  WHERE r.source_event_id = NEW.source_event_id
                    AND r.source_stream_id = NEW.source_stream_id
                    AND r.integration_type = NEW.integration_type AND r.copy = NEW.copy
                    AND r.until > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
      AND json_extract(NEW.headers, '$."postroom-replay-of"') IS NULL;
END;

-- Follows what is changed by hand. What is claimed is never touched: the attempt under way decides for
-- itself, and its end looks at the message. A parcel that no claim names becomes a delivery at once:
-- nobody can take it meanwhile, since SQLite has one writer. Statuses are listed: a message with one that
-- nobody knows has neither.
--
-- Fires where the ledger does not say what the message says by now. Postroom changes the ledger first,
-- so its own writes never do; a column could not tell them from changes by hand, since whoever saves a
-- whole row that was read a while ago writes all of them. The cases are in this order so that a
-- completion looks up two keys and searches no claim.
CREATE TRIGGER outbox_follow AFTER UPDATE OF status, due_at, integration_type ON integration_outbox
WHEN (OLD.status IS NOT NEW.status OR OLD.due_at IS NOT NEW.due_at
      OR OLD.integration_type IS NOT NEW.integration_type)
    AND CASE
        WHEN EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = NEW.id)
        THEN EXISTS (
            SELECT 1 FROM outbox_delivery AS d
            WHERE d.message_id = NEW.id AND d.claim IS NULL
              AND NOT (
                  d.integration = NEW.integration_type
                  AND d.due_at
                      = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
                  AND d.state IS CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f'
                                                 WHEN 'DEAD' THEN 'd' END
              )
        )
        WHEN EXISTS (SELECT 1 FROM outbox_parcel AS p
                     WHERE p.integration = OLD.integration_type AND p.seq = OLD.seq
                       AND p.message_id = OLD.id)
        THEN NOT EXISTS (
            SELECT 1 FROM outbox_claim AS c
            WHERE c.lowest <= OLD.seq AND c.highest >= OLD.seq
              AND instr(c.parcels, '"' || lower(OLD.id) || '"') > 0
        )
        -- It was closed; or it is in flight, and was sent elsewhere meanwhile: its parcel is still in the
        -- lane that it was taken from.
        ELSE NEW.status IN ('PENDING', 'FAILED', 'DEAD') AND NOT EXISTS (
            SELECT 1 FROM outbox_claim AS c
            WHERE c.lowest <= OLD.seq AND c.highest >= OLD.seq
              AND instr(c.parcels, '"' || lower(OLD.id) || '"') > 0
              AND EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                          CROSS JOIN outbox_parcel AS p
                              ON p.integration = l.integration AND p.seq = OLD.seq
                             AND p.message_id = OLD.id)
        )
        END
BEGIN
    DELETE FROM outbox_delivery
    WHERE message_id = NEW.id AND claim IS NULL
      AND NEW.status NOT IN ('PENDING', 'FAILED', 'DEAD');

    UPDATE outbox_delivery
    SET seq = NEW.seq, integration = NEW.integration_type,
        due_at = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        since = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        rescues = 0,
        state = CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END
    WHERE message_id = NEW.id AND claim IS NULL;

    -- A message in a parcel was never dispatched. One that is opened again may have had any number of
    -- dispatches, and a job of one of them may still be kept. None of their numbers comes again:
    -- numbering restarts at the seconds since 2020-01-01.
    INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration, dispatch)
    SELECT NEW.id, NEW.seq, CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           CASE NEW.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END,
           NEW.integration_type,
           CASE WHEN EXISTS (SELECT 1 FROM outbox_parcel AS p
                             WHERE p.integration = OLD.integration_type AND p.seq = OLD.seq
                               AND p.message_id = OLD.id)
                THEN 0 ELSE CAST(strftime('%s', 'now') AS INTEGER) - 1577836800 END
    WHERE NEW.status IN ('PENDING', 'FAILED', 'DEAD')
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = NEW.id);

    DELETE FROM outbox_parcel
    WHERE integration = OLD.integration_type AND seq = OLD.seq AND message_id = OLD.id;
END;

-- layout: made
-- What is in flight out of parcels: never much, and found by the claims, never by searching parcels.
CREATE VIEW outbox_in_flight AS
SELECT p.message_id, c.token, p.integration, p.seq, p.due_at
FROM outbox_claim AS c
CROSS JOIN json_each(c.parcels) AS named
CROSS JOIN outbox_parcel AS p
    ON p.integration = json_extract(named.value, '$[0]')
   AND p.seq = json_extract(named.value, '$[1]')
   AND p.message_id = json_extract(named.value, '$[2]')
WHERE c.parcels IS NOT NULL;

-- The whole truth in the columns that everyone knows; every tool reads this. A message is held by the claim
-- that its delivery carries; without a delivery, by the claim that names its parcel. That one is searched
-- for from the message, as in outbox_follow: this view is asked for one message or for all of them.
CREATE VIEW outbox_messages AS
SELECT m.id, m.source_stream_id, m.source_event_id, m.integration_type, m.event_type,
       m.payload, m.headers, m.tenant_id, m.user_id, m.correlation_id,
       m.due_at, m.attempts, m.max_attempts,
       CASE WHEN c.token IS NULL THEN m.status ELSE 'CLAIMED' END AS status,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.since / 1000.0, 'unixepoch') AS locked_at,
       c.worker AS locked_by,
       m.created_at, m.updated_at, m.sent_at, m.last_error,
       m.seq, m.copy, m.ordering_key, m.causation_id, m.source, m.schema_version, m.occurred_at/*keys*/
FROM integration_outbox AS m
LEFT JOIN outbox_delivery AS d ON d.message_id = m.id
LEFT JOIN outbox_claim AS c ON c.token = CASE
    WHEN d.message_id IS NOT NULL THEN d.claim
    ELSE (
        SELECT f.token FROM outbox_claim AS f
        WHERE f.lowest <= m.seq AND f.highest >= m.seq
          AND instr(f.parcels, '"' || lower(m.id) || '"') > 0
          AND EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                      CROSS JOIN outbox_parcel AS p
                          ON p.integration = l.integration AND p.seq = m.seq AND p.message_id = m.id)
    )
    END;
