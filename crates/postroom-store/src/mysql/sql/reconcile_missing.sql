-- Open messages that neither a parcel of their lane nor a delivery names, and that nobody has changed by hand
-- since: that is followed. {after} which id, {rows}.
SELECT m.id, m.seq FROM integration_outbox /*row*/ AS m FORCE INDEX (outbox_id)
LEFT JOIN outbox_delivery AS d ON d.message_id = m.id
LEFT JOIN outbox_parcel AS p
    ON p.integration = m.integration_type AND p.seq = m.seq AND p.message_id = m.id
WHERE m.id > {after} AND m.status IN ('PENDING', 'FAILED', 'DEAD')
  AND d.message_id IS NULL AND p.message_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM outbox_pending_edit AS e WHERE e.message_id = m.id)
ORDER BY m.id LIMIT {rows}
