-- A message whose parcel is gone, by a statement before this one, is due later. Only where it says what its
-- parcel said: nobody has changed it. ?1 id, ?2 due, ?3 the parcel's lane, ?4 its due time.
INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
SELECT m.id, m.seq, ?2, ?2, 'w', m.integration_type
FROM integration_outbox AS m
WHERE m.id = ?1 AND m.status = 'PENDING' AND m.integration_type = ?3
  AND CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER) = ?4
