-- $1 token.
DELETE FROM core_outbox.claim
WHERE token = $1
  AND NOT EXISTS (SELECT FROM core_outbox.delivery WHERE claim = $1)
