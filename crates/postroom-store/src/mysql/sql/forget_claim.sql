-- A claim on deliveries goes once none carries it. Token, twice.
DELETE FROM outbox_claim
WHERE token = ? AND NOT EXISTS (SELECT 1 FROM outbox_delivery WHERE claim = ?)
