-- What open messages that neither a parcel nor a delivery names have in common. A message that was sent
-- elsewhere by hand while it was in flight is in a parcel of the lane that it was taken from.
m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM outbox_parcel AS p
                  WHERE p.integration = m.integration_type AND p.seq = m.seq AND p.message_id = m.id)
  AND NOT EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                  CROSS JOIN outbox_parcel AS p
                      ON p.integration = l.integration AND p.seq = m.seq AND p.message_id = m.id)
