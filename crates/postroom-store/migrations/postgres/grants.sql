-- Two roles without a login. Grant them to those that producers and relays connect as, for
-- instance GRANT postroom_producer TO shop.

-- Producers insert messages. What they may read is what RETURNING, ON CONFLICT and the search for
-- a duplicate need: no payload, no header, no state but the defaults of a new row.
CREATE ROLE postroom_producer NOLOGIN;
GRANT USAGE ON SCHEMA core_outbox TO postroom_producer;
GRANT INSERT ON core_outbox.integration_outbox TO postroom_producer;
GRANT SELECT (id, source_stream_id, source_event_id, integration_type, copy,
              seq, due_at, attempts, max_attempts, status, schema_version, created_at, updated_at)
    ON core_outbox.integration_outbox TO postroom_producer;
GRANT EXECUTE ON FUNCTION core_outbox.uuid_v7() TO postroom_producer;
GRANT EXECUTE ON FUNCTION core_outbox.enqueue(
    text, text, jsonb, text, text, jsonb, text, text, text, timestamptz, int, text, text, text, int,
    timestamptz, int) TO postroom_producer;

-- Relays, and the tools of those who operate them, read and write what the schema holds, and
-- change nothing about it.
CREATE ROLE postroom_relay NOLOGIN;
GRANT USAGE ON SCHEMA core_outbox TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON core_outbox.integration_outbox, core_outbox.parcel, core_outbox.delivery, core_outbox.claim,
       core_outbox.relay, core_outbox.lane_cursor, core_outbox.sent,
       core_outbox.remembered TO postroom_relay;
GRANT SELECT, DELETE ON core_outbox.pending_edit TO postroom_relay;
GRANT SELECT ON core_outbox.messages, core_outbox.in_flight, core_outbox.schema_migration
    TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.uuid_v7() TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.lane_of(text) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.content_bytes(jsonb, jsonb) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.state_of(varchar) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.is_waiting(varchar) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.is_noted_sent(uuid) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.dedupe_key(text, text, text, int) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.is_replay(jsonb) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.parcel_group(bigint) TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.numbers_behind() TO postroom_relay;
GRANT EXECUTE ON FUNCTION core_outbox.advance_numbers() TO postroom_relay;
GRANT SELECT, INSERT, DELETE, UPDATE (response) ON core_outbox.attempt TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON core_outbox.action, core_outbox.checkpoint TO postroom_relay;
