-- Locks expired claims, on parcels or on deliveries, before anything is looked at: what was added to one a
-- moment ago is seen by the next statement. One that is locked is being settled this very moment. $1 claims
-- at most, $2 the caller's own relay, $3 whether those on parcels are wanted. Lock order: relay, claim.
SELECT c.token FROM core_outbox.claim c
WHERE (c.lanes IS NOT NULL) = $3::boolean AND c.relay <> $2
  AND (
      -- The heartbeat has ended. The row stays locked, so that a relay that comes back waits and
      -- then sees what it has lost; one that is beating just now is left alone. There are as many
      -- rows as relays, and an array of them is the same under every plan.
      c.relay = ANY (ARRAY(
          SELECT r.id FROM core_outbox.relay r
          WHERE r.until < now() AND r.id = ANY (ARRAY(SELECT relay FROM core_outbox.claim))
          FOR SHARE SKIP LOCKED
      ))
      -- It has left, or has given the claim up.
      OR c.relay <> ALL (ARRAY(SELECT id FROM core_outbox.relay))
  )
LIMIT $1
FOR UPDATE OF c SKIP LOCKED
