-- How far those have come who bring messages from elsewhere. A position moves in the transaction that
-- writes the messages up to it, so that none is written twice or left out after a crash. The time is
-- in milliseconds since 1970.
CREATE TABLE outbox_checkpoint (
    name       TEXT    PRIMARY KEY,
    position   TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,

    CONSTRAINT name_length CHECK (length(name) <= 120)
) WITHOUT ROWID;
