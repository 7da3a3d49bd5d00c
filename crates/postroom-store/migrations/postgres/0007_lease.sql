-- Claims on what is in queues are kept by a lease: one row of this table per relay, which is extended,
-- and which its claims name. Such a claim has expired once both times are over, its own and its
-- lease's.
ALTER TABLE core_outbox.claim ADD COLUMN IF NOT EXISTS lease uuid;
