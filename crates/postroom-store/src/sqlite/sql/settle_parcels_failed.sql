-- A failed attempt of a message whose parcel is gone, by a statement before this one: from here on it has a
-- delivery, due again or dead, in the lane that the message says by now. ?1 id, ?2 due, or null for dead.
INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
SELECT m.id, m.seq,
       coalesce(?2, CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER)),
       CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
       iif(?2 IS NULL, 'd', 'f'), m.integration_type
FROM integration_outbox AS m WHERE m.id = ?1
