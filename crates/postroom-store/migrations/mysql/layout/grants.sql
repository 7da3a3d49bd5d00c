-- Two roles. Grant them to those that producers and relays connect as, and make them the default:
-- GRANT postroom_producer TO 'shop'@'%', then SET DEFAULT ROLE postroom_producer FOR 'shop'@'%'
-- (MySQL: … TO 'shop'@'%').

-- Producers insert into {table} as they did before: the triggers that feed the ledger run with the rights of whoever
-- migrated. This is for those who call the ledger's `enqueue`.
CREATE ROLE IF NOT EXISTS postroom_producer;
{enqueues}
-- Relays read the rows through a view, and write to them through triggers, with the rights of whoever migrated. Of the
-- table itself they need nothing but to be told what it looks like.
CREATE ROLE IF NOT EXISTS postroom_relay;
GRANT SELECT ON {table} TO postroom_relay;
GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON {ledger}.* TO postroom_relay;
