-- What went wrong before, and who did what: the history of failed attempts, and the record of
-- operations.

-- One row per failed attempt, written with the failure. Numbered within its message, so that the
-- key finds a message's attempts in order. They go with their message. `seq` is the message's, as
-- in outbox_delivery; times are milliseconds since 1970.
CREATE TABLE outbox_attempt (
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    outcome TEXT    NOT NULL,
    error   TEXT    NOT NULL,
    PRIMARY KEY (seq, number),
    CONSTRAINT outcome_known CHECK (outcome IN ('retry', 'reject', 'lost'))
) WITHOUT ROWID;

-- One row per operation. `messages` grows with what it changes, in the same transactions.
CREATE TABLE outbox_action (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    actor     TEXT    NOT NULL,
    operation TEXT    NOT NULL,
    target    TEXT    NOT NULL,
    messages  INTEGER NOT NULL DEFAULT 0
);
