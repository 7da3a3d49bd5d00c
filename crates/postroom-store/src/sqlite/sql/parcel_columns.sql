-- What a take has to know of a parcel: its key, and what its message says by now. Nothing, where that is
-- gone or another message has its number.
p.integration, p.seq, p.message_id, m.status, m.integration_type = p.integration,
CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = p.message_id),
coalesce(octet_length(m.payload), 0), coalesce(octet_length(m.headers), 0)
