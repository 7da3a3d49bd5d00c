-- What went wrong before, and who did what: the history of failed attempts, and the record of
-- operations. Neither has a foreign key: a TRUNCATE of the messages stays possible, and no lock is
-- taken on them.

-- One row per failed attempt, written with the failure. Numbered within its message, so that the
-- key finds a message's attempts in order. They go with their message.
CREATE TABLE IF NOT EXISTS core_outbox.attempt (
    message_id uuid        NOT NULL,
    number     int         NOT NULL,
    at         timestamptz NOT NULL,
    took_ms    bigint      NOT NULL,
    outcome    varchar(20) NOT NULL,
    error      text        NOT NULL,
    PRIMARY KEY (message_id, number),
    CONSTRAINT outcome_known CHECK (outcome IN ('retry', 'reject', 'lost'))
);

-- One row per operation. `messages` grows with what it changes, in the same transactions.
CREATE TABLE IF NOT EXISTS core_outbox.action (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT now(),
    actor     text        NOT NULL,
    operation varchar(20) NOT NULL,
    target    text        NOT NULL,
    messages  bigint      NOT NULL DEFAULT 0
);

-- Lists go by it in pages, and it refuses a number that is taken: that message would have no
-- delivery.
-- postroom: outside a transaction
CREATE UNIQUE INDEX CONCURRENTLY outbox_seq ON core_outbox.integration_outbox (seq);
