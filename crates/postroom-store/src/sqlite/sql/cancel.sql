-- What waits no longer. What was in a parcel that nobody holds has its delivery by now. ?1 ids.
UPDATE outbox_delivery SET state = 'd', rescues = 0
WHERE message_id IN (SELECT value FROM json_each(?1)) AND state <> 'd' AND claim IS NULL
  AND EXISTS (SELECT 1 FROM integration_outbox AS m
              WHERE m.id = outbox_delivery.message_id AND m.status IN ('PENDING', 'FAILED'))
RETURNING message_id
