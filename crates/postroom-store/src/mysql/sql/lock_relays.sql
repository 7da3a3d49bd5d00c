-- Locks the rows of relays, and says which of them live after all. {relays}.
SELECT id, until >= UTC_TIMESTAMP(6) FROM outbox_relay FORCE INDEX (PRIMARY)
WHERE id IN ({relays}) LOCK IN SHARE MODE
