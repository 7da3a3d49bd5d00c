-- Which of these messages are in a parcel, of whatever lane. {ids}.
SELECT DISTINCT message_id FROM outbox_parcel WHERE message_id IN ({ids})
