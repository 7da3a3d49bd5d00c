-- Writes nothing unless the relay lives: such a claim would be anybody's at once. ?1 token, ?2 worker,
-- ?3 now, ?4 alone, ?5 dispatched, ?6 relay, ?7 parcels or null, ?8 their lowest and ?9 their highest
-- number.
INSERT INTO outbox_claim (token, worker, since, alone, dispatched, relay, parcels, lowest, highest)
SELECT ?1, ?2, ?3, ?4, ?5, id, ?7, ?8, ?9 FROM outbox_relay WHERE id = ?6 AND until >= ?3
