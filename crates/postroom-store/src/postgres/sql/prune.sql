-- $1 age in seconds, $2 rows at most, $3 for how many seconds after its delivery a message's event is
-- remembered. The BRIN index on created_at bounds the scan.
WITH changed AS (
    DELETE FROM core_outbox.integration_outbox m
    WHERE m.ctid = ANY (ARRAY(
        SELECT o.ctid FROM core_outbox.integration_outbox o
        WHERE o.created_at < now() - make_interval(secs => $1)
          AND o.status = 'SENT'
          -- A message that was set to SENT by hand may say no time.
          AND coalesce(o.sent_at, o.created_at) < now() - make_interval(secs => $1)
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING m.id,
              -- What was not delivered because its event was remembered is not remembered for that.
              CASE WHEN m.last_error IS DISTINCT FROM 'not delivered: the same event was delivered before'
                   THEN coalesce(m.sent_at, m.created_at) END AS sent_at,
              m.source_event_id, m.source_stream_id, m.integration_type, m.copy, m.headers
),
forgotten AS (
    DELETE FROM core_outbox.attempt WHERE message_id = ANY (ARRAY(SELECT id FROM changed))
),
