-- Which of these parcels are still there and name a message that is open or dead. ?1 parcels.
SELECT p.integration, p.seq, p.message_id
FROM json_each(?1) AS named
CROSS JOIN outbox_parcel AS p
    ON p.integration = json_extract(named.value, '$[0]')
   AND p.seq = json_extract(named.value, '$[1]')
   AND p.message_id = json_extract(named.value, '$[2]')
CROSS JOIN integration_outbox AS m ON m.id = p.message_id
WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = p.message_id)
