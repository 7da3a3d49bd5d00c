-- Rows that expired long ago, or served a single call, and hold no claim. ?1 now, ?2 long ago.
DELETE FROM outbox_relay
WHERE until < iif(lanes > 0, ?2, ?1)
  AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.relay = outbox_relay.id)
