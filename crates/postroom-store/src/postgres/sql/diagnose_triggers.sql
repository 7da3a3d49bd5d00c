-- The triggers that keep the ledger in step, as far as they do not fire for everybody. The one
-- that wakes relays may be off.
SELECT wanted.name
FROM unnest(ARRAY['outbox_emptied', 'outbox_feed', 'outbox_follow']) AS wanted (name)
WHERE NOT EXISTS (
    SELECT FROM pg_trigger t
    WHERE t.tgrelid = 'core_outbox.integration_outbox'::regclass
      AND t.tgname = wanted.name AND t.tgenabled IN ('O', 'A')
)
ORDER BY 1
