-- The table as the migration of its owner makes it. PostgreSQL takes it as it stands: nothing was corrected.

CREATE SCHEMA IF NOT EXISTS core_outbox;
CREATE TABLE IF NOT EXISTS core_outbox.integration_outbox (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  source_stream_id varchar(200) NOT NULL,
  source_event_id varchar(100) NOT NULL,
  integration_type varchar(120) NOT NULL,
  event_type varchar(120) NOT NULL,
  payload jsonb NOT NULL,
  headers jsonb,
  tenant_id varchar(60),
  user_id varchar(60),
  correlation_id varchar(120),
  due_at timestamptz NOT NULL DEFAULT now(),
  attempts int NOT NULL DEFAULT 0,
  max_attempts int NOT NULL DEFAULT 10,
  status varchar(20) NOT NULL DEFAULT 'PENDING',
  locked_at timestamptz,
  locked_by varchar(120),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  sent_at timestamptz,
  last_error text
);
CREATE UNIQUE INDEX IF NOT EXISTS ux_outbox_source ON core_outbox.integration_outbox (source_stream_id, source_event_id);
CREATE INDEX IF NOT EXISTS ix_outbox_status_due ON core_outbox.integration_outbox (status, due_at);
