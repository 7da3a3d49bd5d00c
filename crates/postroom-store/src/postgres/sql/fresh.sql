-- A message `m` that a parcel names. `content.rs` puts its content in, and `fresh_of.sql` follows.
SELECT m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
