GRANT SELECT, INSERT, DELETE ON core_outbox.attempt TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON core_outbox.action TO postroom_relay;
