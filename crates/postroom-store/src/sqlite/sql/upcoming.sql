-- ?1 after, ?2 rows.
SELECT seq FROM (SELECT seq FROM integration_outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2)
UNION
SELECT seq FROM (
    SELECT seq, due_at FROM outbox_delivery WHERE state <> 'd'
    UNION ALL
    SELECT seq, due_at FROM outbox_parcel
    ORDER BY due_at, seq LIMIT ?2
)
