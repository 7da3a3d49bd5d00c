-- ?1 worker, ?2 message id.
SELECT c.token, m.seq
FROM integration_outbox AS m
LEFT JOIN outbox_delivery AS d ON d.message_id = m.id
CROSS JOIN outbox_claim AS c
WHERE m.id = ?2 AND c.worker = ?1
  AND CASE WHEN d.message_id IS NOT NULL THEN c.token = d.claim
           ELSE c.lowest <= m.seq AND c.highest >= m.seq
                AND EXISTS (SELECT 1 FROM outbox_in_flight AS f
                            WHERE f.token = c.token AND f.message_id = m.id) END
