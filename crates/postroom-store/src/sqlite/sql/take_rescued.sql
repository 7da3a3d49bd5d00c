-- The due deliveries of one lane that were rescued, like `take.sql`. How many of them share a claim is
-- decided in Rust. ?1 lane, ?2 now, ?3 rows.
SELECT d.message_id, m.seq, d.due_at, d.rescues, d.dispatch, m.status,
       coalesce(octet_length(m.payload), 0), coalesce(octet_length(m.headers), 0)
FROM outbox_delivery AS d INDEXED BY outbox_delivery_rescued
LEFT JOIN integration_outbox AS m ON m.id = d.message_id
WHERE d.integration = ?1
  AND d.claim IS NULL AND d.state <> 'd' AND d.rescues > 0 AND d.due_at <= ?2
ORDER BY d.due_at, d.seq LIMIT ?3
