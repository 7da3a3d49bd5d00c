-- $1 age in seconds.
SELECT count(*) FROM core_outbox.integration_outbox
WHERE created_at < now() - make_interval(secs => $1)
  AND status = 'SENT'
  AND coalesce(sent_at, created_at) < now() - make_interval(secs => $1)
