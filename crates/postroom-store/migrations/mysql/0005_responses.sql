-- What a receiver answered to a failed attempt, where its integration keeps that.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, and what was cut off must be repeatable.

SET @postroom = IF(
    EXISTS (SELECT 1 FROM information_schema.COLUMNS
            WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_attempt'
              AND COLUMN_NAME = 'response'),
    'DO 0',
    'ALTER TABLE outbox_attempt ADD COLUMN response TEXT');
PREPARE postroom FROM @postroom;
EXECUTE postroom;
DEALLOCATE PREPARE postroom;
