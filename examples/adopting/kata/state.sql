-- What the owner asks the table. The test of this example runs each of these.

-- by status
SELECT status, count(*) FROM outbox GROUP BY status;

-- unsent
SELECT count(*) FROM outbox WHERE status IN ('PENDING', 'SENDING');

-- next batch
SELECT event_id, type, aggregate_id, payload FROM outbox
WHERE status = 'PENDING' AND next_attempt_at <= extract(epoch FROM now()) * 1000
ORDER BY created_at LIMIT 50;

-- delivered
SELECT count(*) FROM outbox WHERE status = 'SENT' AND attempts >= 1;

-- retried and delivered
SELECT count(*) FROM outbox WHERE status = 'SENT' AND attempts > 1 AND length(last_error) BETWEEN 1 AND 200;

-- dead
SELECT count(*) FROM outbox WHERE status = 'FAILED' AND attempts >= 1 AND length(last_error) BETWEEN 1 AND 200;

-- replay
UPDATE outbox SET status = 'PENDING', next_attempt_at = (extract(epoch FROM now()) * 1000)::bigint
WHERE status = 'FAILED';
