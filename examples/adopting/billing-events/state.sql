-- What the owner asks the table. The test of this example runs each of these.

-- by status
SELECT payload->>'outbox_status', count(*) FROM billing_events GROUP BY 1;

-- unsent
SELECT count(*) FROM billing_events WHERE payload->>'outbox_status' IN ('pending', 'failed');

-- next batch
SELECT id, subject, payload FROM billing_events
WHERE payload->>'outbox_status' = 'pending' AND (payload->>'outbox_next_attempt_at')::timestamptz <= now()
ORDER BY created_at LIMIT 100;

-- delivered
SELECT count(*) FROM billing_events WHERE payload->>'outbox_status' = 'dispatched';

-- retried and delivered
SELECT count(*) FROM billing_events
WHERE payload->>'outbox_status' = 'dispatched' AND (payload->>'outbox_retry_count')::int > 0
  AND payload->>'outbox_last_error' IS NOT NULL;

-- dead
SELECT count(*) FROM billing_events
WHERE payload->>'outbox_status' = 'dead_letter' AND (payload->>'outbox_retry_count')::int > 0
  AND payload->>'outbox_last_error' <> '';

-- replay
UPDATE billing_events
SET payload = payload || '{"outbox_status": "pending", "outbox_retry_count": 0}'
WHERE payload->>'outbox_status' = 'dead_letter';
