-- Messages that are handed over to a queue. `dispatch` counts how many hand-overs of a message are
-- over: the job of the current or next one has the number after it, and needs no write to be known.
-- A message that was handed over cannot kill its relay: losing a claim that is `dispatched` is no
-- rescue.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, and what was cut off must be repeatable.

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_delivery'
              AND COLUMN_NAME = 'dispatch'),
    'DO 0',
    'ALTER TABLE outbox_delivery ADD COLUMN dispatch INT NOT NULL DEFAULT 0');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'dispatched'),
    'DO 0',
    'ALTER TABLE outbox_claim ADD COLUMN dispatched BOOLEAN NOT NULL DEFAULT FALSE');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;
