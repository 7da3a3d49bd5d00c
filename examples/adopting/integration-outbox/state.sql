-- What the owner asks the table. The test of this example runs each of these.

-- by status
SELECT status, count(*) FROM core_outbox.integration_outbox GROUP BY status;

-- unsent
SELECT count(*) FROM core_outbox.integration_outbox WHERE status NOT IN ('SENT', 'DEAD');

-- delivered
SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT' AND sent_at IS NOT NULL;

-- dead
SELECT count(*) FROM core_outbox.integration_outbox
WHERE status = 'DEAD' AND attempts > 0 AND last_error IS NOT NULL;

-- replay
UPDATE core_outbox.integration_outbox SET status = 'PENDING', attempts = 0, due_at = now() WHERE status = 'DEAD';
