-- Dead messages with all they have. A message's recorded state last changed when it died. Lock
-- order: delivery, message. $1 age in seconds, $2 rows at most.
WITH gone AS (
    DELETE FROM core_outbox.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT d.ctid
        FROM core_outbox.delivery d
        JOIN core_outbox.integration_outbox m ON m.id = d.message_id
        WHERE d.state = 'd' AND d.claim IS NULL
          AND m.status = 'DEAD' AND m.updated_at < now() - make_interval(secs => $1)
        LIMIT $2
        FOR UPDATE OF d SKIP LOCKED
    ))
    RETURNING message_id
),
changed AS (
    DELETE FROM core_outbox.integration_outbox m
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM gone))
    RETURNING m.id
),
forgotten AS (
    DELETE FROM core_outbox.attempt WHERE message_id = ANY (ARRAY(SELECT id FROM changed))
)
