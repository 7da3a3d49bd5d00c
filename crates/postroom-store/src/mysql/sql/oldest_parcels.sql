-- The parcels of one lane that were due first. {lane}, {rows}.
SELECT integration, seq, message_id, CAST(bytes AS SIGNED), due_at FROM outbox_parcel
WHERE integration = {lane} ORDER BY due_at LIMIT {rows}
