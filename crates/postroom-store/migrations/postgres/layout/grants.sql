-- Two roles without a login. Grant them to those that producers and relays connect as, for
-- instance GRANT postroom_producer TO shop.

-- Producers insert into {table} as they did before: the triggers that feed the ledger run with the rights of whoever
-- migrated. This is for those who call the ledger's `enqueue`.
CREATE ROLE postroom_producer NOLOGIN;
GRANT USAGE ON SCHEMA {schema} TO postroom_producer;
GRANT SELECT, INSERT ON {table} TO postroom_producer;
GRANT SELECT ON {schema}.integration_outbox TO postroom_producer;

-- Relays, and the tools of those who operate them, read the table, write what the layout says, and hold the ledger.
CREATE ROLE postroom_relay NOLOGIN;
GRANT USAGE ON SCHEMA {schema} TO postroom_relay;
{written}
-- A view is locked by whoever may update it; nobody writes to it.
GRANT SELECT, UPDATE ON {schema}.integration_outbox TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON {schema}.parcel, {schema}.delivery, {schema}.claim, {schema}.relay, {schema}.lane_cursor, {schema}.sent,
       {schema}.remembered TO postroom_relay;
GRANT SELECT, DELETE ON {schema}.pending_edit TO postroom_relay;
GRANT SELECT ON {schema}.messages, {schema}.in_flight, {schema}.schema_migration, {schema}.layout TO postroom_relay;
GRANT SELECT, INSERT, DELETE, UPDATE (response) ON {schema}.attempt TO postroom_relay;
GRANT SELECT, INSERT, UPDATE ON {schema}.action, {schema}.checkpoint TO postroom_relay;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO postroom_relay;
