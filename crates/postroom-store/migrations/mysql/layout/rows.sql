-- What the ledger of {table} knows of each of its rows: the state that a relay works by, which the row itself may have
-- no place for, and a number. Content stays in the row. Triggers keep the two in step, in both directions.
CREATE TABLE IF NOT EXISTS integration_outbox (
    seq              BIGINT       NOT NULL AUTO_INCREMENT
        COMMENT 'Orders fresh messages, lists, and deliveries that are due at the same time. No commit order.',
    id               CHAR(36)     CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL
        COMMENT 'What the ledger names the row by: its key where that is a uuid, else a hash of its key.',
{keys}
    integration_type VARCHAR(120) NOT NULL
        COMMENT 'Where it goes, adapter:channel. Each integration is a lane of its own.',
    status           VARCHAR(20)  NOT NULL
        COMMENT 'PENDING, FAILED (to be tried again), SENT or DEAD.',
    due_at           DATETIME(6)  NOT NULL
        COMMENT 'When it may be delivered, in UTC. After a failure, when it is tried again.',
    attempts         INT          NOT NULL
        COMMENT 'Failed attempts so far.',
    max_attempts     INT          NOT NULL
        COMMENT 'How many attempts may fail before it is DEAD, unless the configuration says otherwise.',
    created_at       DATETIME(6)  NOT NULL
        COMMENT 'When it was enqueued, in UTC.',
    updated_at       DATETIME(6)  NOT NULL
        COMMENT 'When its state last changed, in UTC.',
    sent_at          DATETIME(6)
        COMMENT 'When it was acknowledged, in UTC.',
    last_error       TEXT
        COMMENT 'Why the last attempt failed.',
    bytes            BIGINT UNSIGNED NOT NULL
        COMMENT 'The size of its content, when it was inserted.',
    is_replay        BOOLEAN      NOT NULL DEFAULT FALSE
        COMMENT 'It was opened again by `postroom messages replay`.',
    settled          BINARY(16)
        COMMENT 'The token of the last write by Postroom.',

    PRIMARY KEY (seq),
    UNIQUE KEY outbox_id (id),
    KEY outbox_created (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  /*M! COLLATE utf8mb4_nopad_bin */
  /*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */
  COMMENT = 'The state of the rows of a table that was there before.';

-- How the table is read and written, as it was migrated.
CREATE TABLE IF NOT EXISTS outbox_layout (
    single      TINYINT      NOT NULL PRIMARY KEY COMMENT 'There is one row.',
    table_name  VARCHAR(200) NOT NULL COMMENT 'The table.',
    fingerprint CHAR(16)     NOT NULL COMMENT 'Of the triggers, views and routines made from the layout.',
    definition  LONGTEXT     NOT NULL COMMENT 'The layout as TOML.',
    applied_at  DATETIME(6)  NOT NULL COMMENT 'When it was migrated, in UTC.'
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
  COMMENT = 'The layout that this ledger is of.';

DROP TRIGGER IF EXISTS outbox_feed;
DROP TRIGGER IF EXISTS outbox_follow;

DELIMITER $$

{feed}

{follow}

DELIMITER ;
