-- Locks the lanes of messages: nobody takes them out of a parcel meanwhile. $1 ids.
SELECT lane FROM core_outbox.lane_cursor
WHERE lane = ANY (ARRAY(
    SELECT core_outbox.lane_of(integration_type) FROM core_outbox.integration_outbox
    WHERE id = ANY ($1)
))
ORDER BY lane
FOR UPDATE
