-- Forgets events whose time is over. {limit}.
DELETE FROM outbox_remembered WHERE until < UTC_TIMESTAMP(6) ORDER BY until LIMIT {limit}
