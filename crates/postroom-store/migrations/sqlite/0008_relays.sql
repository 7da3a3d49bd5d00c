-- One row per relay, kept by a heartbeat. A claim names its relay and has no time of its own: it has
-- expired when that row is missing or its time is over. This replaces the time in each claim, and the
-- leases that kept claims on what is in queues.
CREATE TABLE outbox_relay (
    id         TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    -- How many integrations it serves. None: the row of a single call, which goes once it has expired.
    lanes      INTEGER NOT NULL
) WITHOUT ROWID;

-- Claims that stand get a row with their own time: their relays, which are older than this, may
-- still finish what they hold. SQLite cannot add a column that must not be null without a default.
ALTER TABLE outbox_claim ADD COLUMN relay TEXT NOT NULL DEFAULT '';
UPDATE outbox_claim SET relay = coalesce(lease, token);
INSERT INTO outbox_relay (id, name, started_at, until, version, lanes)
SELECT relay, min(worker), min(since), max(until), '', 0 FROM outbox_claim GROUP BY relay;

ALTER TABLE outbox_claim DROP COLUMN until;
ALTER TABLE outbox_claim DROP COLUMN lease;
CREATE INDEX outbox_claim_relay ON outbox_claim (relay);
