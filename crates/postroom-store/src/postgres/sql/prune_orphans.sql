-- Dead deliveries whose message was deleted by hand. $1 rows at most.
DELETE FROM core_outbox.delivery
WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM core_outbox.delivery d
    WHERE d.dead AND d.claim IS NULL
      AND NOT EXISTS (
          SELECT FROM core_outbox.integration_outbox m WHERE m.id = d.message_id
      )
    LIMIT $1
    FOR UPDATE SKIP LOCKED
))
