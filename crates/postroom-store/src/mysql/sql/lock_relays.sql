-- Locks the row of a relay, and says whether it lives after all. {relay}.
SELECT id, until >= UTC_TIMESTAMP(6) FROM outbox_relay WHERE id = {relay} LOCK IN SHARE MODE
