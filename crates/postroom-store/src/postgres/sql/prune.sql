-- $1 age in seconds, $2 rows at most, $3 for how many seconds after its delivery a message's event is
-- remembered. The BRIN index on created_at bounds the scan.
WITH changed AS (
    DELETE FROM core_outbox.integration_outbox
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM core_outbox.integration_outbox
        WHERE created_at < now() - make_interval(secs => $1)
          AND status = 'SENT'
          -- A message that was set to SENT by hand may say no time.
          AND coalesce(sent_at, created_at) < now() - make_interval(secs => $1)
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id,
              -- What was not delivered because its event was remembered is not remembered for that.
              CASE WHEN last_error IS DISTINCT FROM 'not delivered: the same event was delivered before'
                   THEN coalesce(sent_at, created_at) END AS sent_at, source_event_id, source_stream_id,
              integration_type, copy, headers
),
forgotten AS (
    DELETE FROM core_outbox.attempt WHERE message_id = ANY (ARRAY(SELECT id FROM changed))
),
