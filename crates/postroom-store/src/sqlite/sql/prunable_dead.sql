-- ?1 before.
SELECT count(*) FROM outbox_delivery AS d INDEXED BY outbox_delivery_dead
CROSS JOIN integration_outbox AS m ON m.id = d.message_id
WHERE d.state = 'd' AND d.claim IS NULL AND m.status = 'DEAD'
  AND julianday(m.updated_at) < julianday(?1)
