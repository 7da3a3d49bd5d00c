-- The owner's row lives in a Map. This is the same row as a table: the names in snake_case, times in epoch
-- milliseconds as there.

CREATE TABLE outbox (
  event_id        uuid        PRIMARY KEY,
  type            text        NOT NULL,
  aggregate_id    text        NOT NULL,
  payload         jsonb       NOT NULL,
  status          varchar(20) NOT NULL,
  attempts        int         NOT NULL,
  next_attempt_at bigint      NOT NULL,
  created_at      bigint      NOT NULL,
  last_error      text
);
CREATE INDEX outbox_pending ON outbox (next_attempt_at) WHERE status = 'PENDING';
