-- What remains is looked at by the database alone, and holds up nobody.

-- postroom: outside a transaction
DROP INDEX CONCURRENTLY IF EXISTS core_outbox.adoption_order;

-- postroom: outside a transaction
-- postroom: 0001 CREATE UNIQUE INDEX outbox_fence

-- postroom: outside a transaction
-- postroom: 0001 CREATE INDEX outbox_number

-- postroom: outside a transaction
-- postroom: 0001 CREATE INDEX outbox_created

-- postroom: outside a transaction
ALTER TABLE core_outbox.integration_outbox VALIDATE CONSTRAINT claims_live_in_ledger;
-- postroom: outside a transaction
ALTER TABLE core_outbox.integration_outbox VALIDATE CONSTRAINT attempts_not_negative;
-- postroom: outside a transaction
ALTER TABLE core_outbox.integration_outbox VALIDATE CONSTRAINT max_attempts_at_least_one;
-- postroom: outside a transaction
ALTER TABLE core_outbox.integration_outbox VALIDATE CONSTRAINT times_finite;
