-- Messages that are new, and those that relays take next. After which number, rows, rows.
(SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) WHERE seq > ? ORDER BY seq LIMIT ?)
UNION
(SELECT seq FROM (
     SELECT seq, due_at FROM outbox_delivery WHERE state <> 'd'
     UNION ALL
     SELECT seq, due_at FROM outbox_parcel
 ) AS open ORDER BY due_at, seq LIMIT ?)
