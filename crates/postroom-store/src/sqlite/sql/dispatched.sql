-- Ends the statement that reads what jobs refer to: the messages that are still to be delivered, and those
-- that were marked SENT or DEAD while they were claimed. What is open and has no delivery is in a parcel,
-- and was never dispatched. ?1 ids.
, m.payload, m.headers, coalesce(d.dispatch, 0), m.status, m.last_error
FROM json_each(?1) AS job
CROSS JOIN integration_outbox AS m ON m.id = job.value
LEFT JOIN outbox_delivery AS d ON d.message_id = m.id
WHERE CASE WHEN d.state IS NULL THEN m.status IN ('PENDING', 'FAILED')
           ELSE d.state <> 'd' AND m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD') END
