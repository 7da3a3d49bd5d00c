-- Two roles. Grant them to those that producers and relays connect as, and make them the default:
-- GRANT postroom_producer TO 'shop'@'%', then SET DEFAULT ROLE postroom_producer FOR 'shop'@'%'
-- (MySQL: … TO 'shop'@'%'). Run this with the outbox's database selected.

-- Producers insert messages. What they may read is what the search for a duplicate needs, and the
-- defaults of a new row: no payload, no header. MariaDB's RETURNING asks for the right to read
-- every column that is written, the payload included; whoever wants it needs SELECT on the table.
CREATE ROLE IF NOT EXISTS postroom_producer;
GRANT INSERT,
      SELECT (id, source_stream_id, source_event_id, integration_type, copy, seq, due_at, attempts,
              max_attempts, status, schema_version, created_at, updated_at)
    ON integration_outbox TO postroom_producer;

-- Relays, and the tools of those who operate them, read and write what the tables hold, and
-- change nothing about them.
CREATE ROLE IF NOT EXISTS postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON integration_outbox TO postroom_relay;
GRANT SELECT, DELETE ON outbox_parcel TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_delivery TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_claim TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_relay TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON outbox_lane_cursor TO postroom_relay;
GRANT SELECT, DELETE ON outbox_pending_edit TO postroom_relay;
GRANT SELECT, INSERT, DELETE, UPDATE (response) ON outbox_attempt TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON outbox_action TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_remembered TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON outbox_checkpoint TO postroom_relay;
GRANT SELECT ON outbox_messages TO postroom_relay;
GRANT SELECT ON outbox_schema_migration TO postroom_relay;
