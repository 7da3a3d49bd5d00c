-- The columns as the owner's document lists them, which gives no statement: types and lengths are ours.

CREATE TABLE billing_events (
  id          varchar(26)  PRIMARY KEY,
  subject     varchar(255) NOT NULL,
  tenant_id   varchar(64)  NOT NULL,
  resource_id varchar(64),
  payload     jsonb        NOT NULL,
  created_at  timestamptz  NOT NULL DEFAULT now()
);
