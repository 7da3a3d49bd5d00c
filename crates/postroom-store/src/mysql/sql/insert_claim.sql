-- Writes nothing unless the relay lives. Token, worker, alone, dispatched, parcels, the lowest and the
-- highest of their numbers, relay.
INSERT INTO outbox_claim (token, worker, since, alone, dispatched, parcels, lowest, highest, relay)
SELECT ?, ?, UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, r.id
FROM outbox_relay AS r FORCE INDEX (PRIMARY) WHERE r.id = ? AND r.until >= UTC_TIMESTAMP(6)
