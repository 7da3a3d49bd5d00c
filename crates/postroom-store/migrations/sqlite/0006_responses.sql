-- What a receiver answered to a failed attempt, where its integration keeps that.
ALTER TABLE outbox_attempt ADD COLUMN response TEXT;
