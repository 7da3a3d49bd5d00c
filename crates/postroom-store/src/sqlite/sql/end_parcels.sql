-- Deletes parcels that are over, and answers with those that were there. ?1 parcels. A row value, since two
-- lists would be compared each with each: that took 130 µs a parcel, this takes one look-up by key.
DELETE FROM outbox_parcel
WHERE (integration, seq, message_id) IN (
    SELECT json_extract(named.value, '$[0]'), json_extract(named.value, '$[1]'),
           json_extract(named.value, '$[2]')
    FROM json_each(?1) AS named
)
RETURNING message_id, integration, due_at
