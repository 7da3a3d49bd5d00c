-- What a receiver answered to a failed attempt, where its integration keeps that.
ALTER TABLE core_outbox.attempt ADD COLUMN IF NOT EXISTS response text;
