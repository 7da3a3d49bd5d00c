-- The outbox on SQLite: what was said (integration_outbox), what is still to be done
-- (outbox_delivery), and who is doing it (outbox_claim).
--
-- SQLite has no schemas, so every name here begins like the outbox: the file may be an
-- application's own. Everything works with SQLite 3.35, since the triggers and defaults run in
-- whatever program writes the row.

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
    source_event_id  TEXT NOT NULL,
    integration_type TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    payload          TEXT NOT NULL,
    headers          TEXT,
    tenant_id        TEXT,
    user_id          TEXT,
    correlation_id   TEXT,
    -- Times are text that julianday() understands, UTC unless they name a zone.
    due_at           TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    attempts         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 10,
    status           TEXT NOT NULL DEFAULT 'PENDING',
    locked_at        TEXT,
    locked_by        TEXT,
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at          TEXT,
    last_error       TEXT,
    -- The row's own key: deliveries are found by it without another index. AUTOINCREMENT, so
    -- that the number of a deleted message is never given to another.
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,
    copy             INTEGER NOT NULL DEFAULT 0,
    ordering_key     TEXT,
    causation_id     TEXT,
    source           TEXT,
    schema_version   INTEGER NOT NULL DEFAULT 1,
    occurred_at      TEXT,
    -- The token of Postroom's last write. A change that leaves it alone was made by hand.
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
    -- Claims live in the delivery. A dispatcher that writes CLAIMED here would deliver
    -- everything a second time, so it is stopped with an error.
    CONSTRAINT claims_live_in_delivery CHECK (status <> 'CLAIMED')
);

-- The fence: one event reaches one integration once per copy.
CREATE UNIQUE INDEX outbox_fence ON integration_outbox
    (source_event_id, source_stream_id, integration_type, copy);
-- For pruning. Grows at its end only, as messages are sent.
CREATE INDEX outbox_sent ON integration_outbox (coalesce(sent_at, created_at))
    WHERE status = 'SENT';

-- One narrow row per message that is not SENT. Times are milliseconds since 1970.
CREATE TABLE outbox_delivery (
    seq         INTEGER PRIMARY KEY,
    integration TEXT    NOT NULL,
    due_at      INTEGER NOT NULL,
    claim       TEXT,
    rescues     INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL,
    dead        INTEGER NOT NULL
);

CREATE INDEX outbox_delivery_ready ON outbox_delivery (integration, due_at, seq)
    WHERE claim IS NULL AND NOT dead AND rescues = 0;
CREATE INDEX outbox_delivery_rescued ON outbox_delivery (integration, due_at, seq)
    WHERE claim IS NULL AND NOT dead AND rescues > 0;
CREATE INDEX outbox_delivery_dead ON outbox_delivery (seq)
    WHERE dead;
CREATE INDEX outbox_delivery_claimed ON outbox_delivery (claim)
    WHERE claim IS NOT NULL;

-- One row per batch taken, so that a batch is extended by one small write.
CREATE TABLE outbox_claim (
    token  TEXT    PRIMARY KEY,
    worker TEXT    NOT NULL,
    since  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    -- A rescued message is held alone; losing it again then counts as an attempt.
    alone  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER outbox_feed AFTER INSERT ON integration_outbox
WHEN NEW.status IN ('PENDING', 'FAILED', 'DEAD')
BEGIN
    INSERT INTO outbox_delivery (seq, integration, due_at, failed, dead)
    VALUES (
        NEW.seq, NEW.integration_type,
        CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        NEW.status = 'FAILED', NEW.status = 'DEAD'
    )
    ON CONFLICT DO NOTHING;
END;

-- Follows what is changed by hand. A claimed delivery is never touched: the attempt under way
-- decides for itself. Statuses are listed: a message with one that nobody knows has no delivery.
CREATE TRIGGER outbox_follow AFTER UPDATE OF status, due_at, integration_type ON integration_outbox
WHEN (OLD.status IS NOT NEW.status OR OLD.due_at IS NOT NEW.due_at
      OR OLD.integration_type IS NOT NEW.integration_type) AND OLD.settled IS NEW.settled
BEGIN
    DELETE FROM outbox_delivery
    WHERE seq = NEW.seq AND claim IS NULL AND NEW.status NOT IN ('PENDING', 'FAILED', 'DEAD');

    UPDATE outbox_delivery
    SET due_at = CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
        integration = NEW.integration_type,
        rescues = 0, failed = NEW.status = 'FAILED', dead = NEW.status = 'DEAD'
    WHERE seq = NEW.seq AND claim IS NULL;

    INSERT INTO outbox_delivery (seq, integration, due_at, failed, dead)
    SELECT NEW.seq, NEW.integration_type,
           CAST(round((julianday(NEW.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
           NEW.status = 'FAILED', NEW.status = 'DEAD'
    WHERE NEW.status IN ('PENDING', 'FAILED', 'DEAD')
    ON CONFLICT DO NOTHING;
END;

-- The whole truth in the columns that everyone knows; every tool reads this.
CREATE VIEW outbox_messages AS
SELECT m.id, m.source_stream_id, m.source_event_id, m.integration_type, m.event_type,
       m.payload, m.headers, m.tenant_id, m.user_id, m.correlation_id,
       m.due_at, m.attempts, m.max_attempts,
       CASE WHEN d.claim IS NULL THEN m.status ELSE 'CLAIMED' END AS status,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.since / 1000.0, 'unixepoch') AS locked_at,
       c.worker AS locked_by,
       m.created_at, m.updated_at, m.sent_at, m.last_error,
       m.seq, m.copy, m.ordering_key, m.causation_id, m.source, m.schema_version, m.occurred_at
FROM integration_outbox m
LEFT JOIN outbox_delivery d ON d.seq = m.seq
LEFT JOIN outbox_claim c ON c.token = d.claim;
