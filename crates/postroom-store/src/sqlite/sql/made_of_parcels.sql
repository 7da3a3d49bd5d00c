-- Makes deliveries of messages whose parcels are gone, by a statement before this one. `in_neither.sql`
-- ends it: a delivery that is there outranks the parcel, and another parcel of the message, of another
-- number or lane, is the one that counts, and may be in flight. ?1 ids, ?2 rescues, ?3 dispatches.
INSERT INTO outbox_delivery (message_id, seq, due_at, since, rescues, dispatch, state, integration)
SELECT m.id, m.seq, CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
       CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER), ?2, ?3,
       CASE m.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END,
       m.integration_type
FROM json_each(?1) AS named
CROSS JOIN integration_outbox AS m ON m.id = named.value
WHERE
