-- One row per relay, kept by a heartbeat. A claim names its relay and has no time of its own: it has
-- expired when that row is missing or its time is over. This replaces the time in each claim, and the
-- leases that kept claims on what is in queues.
--
-- What was cut off must be repeatable: each step looks at what is there.
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

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'relay'),
    'DO 0',
    'ALTER TABLE outbox_claim ADD COLUMN relay BINARY(16), ADD KEY outbox_claim_relay (relay)');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;

-- Claims that stand get a row with their own time: their relays, which are older than this, may
-- still finish what they hold.
SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'until'),
    'INSERT IGNORE INTO outbox_relay (id, name, started_at, until, version, lanes)
     SELECT COALESCE(lease, token), MIN(worker), MIN(since), MAX(until), '''', 0
     FROM outbox_claim GROUP BY COALESCE(lease, token)',
    'DO 0');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'lease'),
    'UPDATE outbox_claim SET relay = COALESCE(lease, token) WHERE relay IS NULL',
    'DO 0');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'until'),
    'ALTER TABLE outbox_claim MODIFY COLUMN relay BINARY(16) NOT NULL,
         DROP KEY outbox_claim_until, DROP COLUMN until, DROP COLUMN lease',
    'DO 0');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;
