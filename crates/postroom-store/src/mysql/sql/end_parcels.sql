-- Deletes a parcel by its whole key, so that no other row is read, or waited for. {lane}, {seq}, {id}.
DELETE FROM outbox_parcel WHERE integration = {lane} AND seq = {seq} AND message_id = {id}
