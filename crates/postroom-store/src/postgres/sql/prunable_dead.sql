-- $1 age in seconds.
SELECT count(*)
FROM core_outbox.delivery d
JOIN core_outbox.integration_outbox m ON m.id = d.message_id
WHERE d.state = 'd' AND d.claim IS NULL
  AND m.status = 'DEAD' AND m.updated_at < now() - make_interval(secs => $1)
