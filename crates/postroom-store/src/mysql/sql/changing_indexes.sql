-- Indexes on columns that change with every outcome.
SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'integration_outbox'
  AND COLUMN_NAME IN ('due_at', 'attempts', 'status', 'locked_at', 'locked_by', 'updated_at',
                      'sent_at', 'last_error', 'settled')
ORDER BY INDEX_NAME
