-- Gives up claims that their relay does not know: losing them counts for nothing. ?1 tokens, ?2 nobody.
UPDATE outbox_claim SET relay = ?2, alone = 0, dispatched = 1
WHERE token IN (SELECT value FROM json_each(?1))
