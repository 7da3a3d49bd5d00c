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
