-- Claims that still name it have expired then. Relay.
DELETE FROM outbox_relay WHERE id = ?
