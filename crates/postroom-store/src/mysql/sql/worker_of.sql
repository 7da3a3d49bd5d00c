-- Token.
SELECT worker FROM outbox_claim WHERE token = ?
