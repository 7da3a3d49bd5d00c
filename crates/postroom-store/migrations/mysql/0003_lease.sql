-- Claims on what is in queues are kept by a lease: one row of this table per relay, which is extended,
-- and which its claims name. Such a claim has expired once both times are over, its own and its
-- lease's.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, and what was cut off must be repeatable.

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_claim'
              AND COLUMN_NAME = 'lease'),
    'DO 0',
    'ALTER TABLE outbox_claim ADD COLUMN lease BINARY(16)');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;
