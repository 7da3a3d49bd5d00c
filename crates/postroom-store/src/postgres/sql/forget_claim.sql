-- $1 token.
DELETE FROM core_outbox.claim c
WHERE c.token = $1
  AND NOT EXISTS (
      SELECT FROM core_outbox.delivery d WHERE d.message_id = ANY (c.ids) AND d.claim = $1
  )
