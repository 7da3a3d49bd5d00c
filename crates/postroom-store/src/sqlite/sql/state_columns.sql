-- What `row::record` reads after the message, in its order, of the view.
, m.status,
CAST(round((julianday(m.locked_at) - 2440587.5) * 86400000.0) AS INTEGER),
m.locked_by,
CAST(round((julianday(m.updated_at) - 2440587.5) * 86400000.0) AS INTEGER),
CAST(round((julianday(m.sent_at) - 2440587.5) * 86400000.0) AS INTEGER),
m.last_error
