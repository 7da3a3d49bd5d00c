-- What deliveries have in common that nobody holds and that say something else than their open message.
FROM outbox_delivery AS d
CROSS JOIN integration_outbox AS m ON m.id = d.message_id
WHERE d.claim IS NULL AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND (d.due_at <> CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER)
       OR d.integration <> m.integration_type
       OR d.state <> CASE m.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END)
