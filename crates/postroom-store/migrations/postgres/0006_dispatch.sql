-- Messages that are handed over to a queue. `dispatch` counts how many hand-overs of a message are
-- over: the job of the current or next one has the number after it, and needs no write to be known.

ALTER TABLE core_outbox.delivery ADD COLUMN IF NOT EXISTS dispatch int NOT NULL DEFAULT 0;

-- A message that was handed over cannot kill its relay: losing such a claim is no rescue.
ALTER TABLE core_outbox.claim ADD COLUMN IF NOT EXISTS dispatched boolean NOT NULL DEFAULT false;
