-- What jobs refer to: the messages that are still to be delivered, and those that were marked SENT or DEAD
-- while they were claimed. What is open and has no delivery is in a parcel, and was never dispatched.
-- {columns}; ids follow.
SELECT {columns}, COALESCE(d.dispatch, 0), m.status, m.last_error
FROM integration_outbox /*row*/ AS m FORCE INDEX (outbox_id)
LEFT JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.message_id = m.id
WHERE CASE WHEN d.state IS NULL THEN m.status IN ('PENDING', 'FAILED')
           ELSE d.state <> 'd' AND m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD') END
  AND m.id IN
