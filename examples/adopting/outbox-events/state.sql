-- What the owner asks the table. The test of this example runs each of these.

-- unsent
SELECT count(*) FROM outbox_events WHERE delivered_at IS NULL;

-- delivered
SELECT count(*) FROM outbox_events WHERE delivered_at >= created_at;

-- lag in seconds
SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox_events WHERE delivered_at IS NULL;

-- next batch
SELECT event_id, event_type, idempotency_key, payload FROM outbox_events
WHERE delivered_at IS NULL ORDER BY created_at LIMIT 100;
