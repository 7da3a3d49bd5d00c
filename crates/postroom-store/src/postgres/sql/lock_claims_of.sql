-- Locks the claims on parcels that name these messages: nobody settles them meanwhile. $1 ids.
SELECT token FROM core_outbox.claim
WHERE token = ANY (ARRAY(SELECT token FROM core_outbox.in_flight WHERE message_id = ANY ($1)))
ORDER BY token
FOR UPDATE
