-- The table of its owner, with one correction: PostgreSQL knows no INDEX inside of CREATE TABLE, so
-- `idx_undelivered` is a statement of its own.

CREATE TABLE outbox_events (
  event_id UUID PRIMARY KEY,
  run_id UUID NOT NULL,
  event_type VARCHAR(50) NOT NULL,
  idempotency_key VARCHAR(255) UNIQUE NOT NULL,
  payload JSONB NOT NULL,
  created_at TIMESTAMPTZ NOT NULL DEFAULT NOW(),
  delivered_at TIMESTAMPTZ
);
CREATE INDEX idx_undelivered ON outbox_events (delivered_at) WHERE delivered_at IS NULL;
