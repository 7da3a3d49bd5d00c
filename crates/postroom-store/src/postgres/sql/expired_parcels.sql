-- Locks expired claims on parcels, as `rescue.sql` finds them. One that is locked is being settled this
-- very moment. $1 claims at most, $2 the caller's own relay.
SELECT c.token FROM core_outbox.claim c
WHERE c.lanes IS NOT NULL AND c.relay <> $2
  AND (
      c.relay = ANY (ARRAY(
          SELECT r.id FROM core_outbox.relay r
          WHERE r.until < now() AND r.id = ANY (ARRAY(SELECT relay FROM core_outbox.claim))
          FOR SHARE SKIP LOCKED
      ))
      OR c.relay <> ALL (ARRAY(SELECT id FROM core_outbox.relay))
  )
LIMIT $1
FOR UPDATE OF c SKIP LOCKED
