-- The parcels of messages, of whatever lane. {ids}.
SELECT integration, seq, message_id, CAST(bytes AS SIGNED), due_at FROM outbox_parcel
WHERE message_id IN ({ids}) ORDER BY integration, seq
