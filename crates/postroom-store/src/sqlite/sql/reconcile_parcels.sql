-- Parcels that do not say what an open message says, or that a delivery outranks. ?1, ?2 and ?3 after which
-- key, ?4 rows.
SELECT p.integration, p.seq, p.message_id
FROM outbox_parcel AS p
LEFT JOIN integration_outbox AS m ON m.seq = p.seq AND m.id = p.message_id
WHERE (p.integration, p.seq, p.message_id) > (?1, ?2, ?3)
  AND (m.id IS NULL OR m.status <> 'PENDING' OR m.integration_type <> p.integration
       OR CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER) <> p.due_at
       OR EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = p.message_id))
ORDER BY p.integration, p.seq, p.message_id LIMIT ?4
