-- Deliveries under a claim that does not exist: no relay holds them, and none can take them. {after} which id,
-- {rows}.
SELECT d.message_id, d.seq FROM outbox_delivery AS d FORCE INDEX (PRIMARY)
LEFT JOIN outbox_claim AS c ON c.token = d.claim
WHERE d.message_id > {after} AND d.claim IS NOT NULL AND c.token IS NULL
ORDER BY d.message_id LIMIT {rows}
