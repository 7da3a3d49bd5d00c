-- What reconciliation would mend: open messages without a delivery, deliveries without an open
-- message, deliveries under a claim that does not exist, deliveries that nobody holds and that say
-- something else than their open message; sequences behind the numbers in use, and messages that
-- share their number with another.
SELECT
    (SELECT count(*) FROM core_outbox.integration_outbox m
     WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
       AND NOT EXISTS (SELECT FROM core_outbox.delivery d
                       WHERE d.seq = m.seq AND d.message_id = m.id)),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NULL
       AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m
                       WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD'))),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NOT NULL
       AND NOT EXISTS (SELECT FROM core_outbox.claim c WHERE c.token = d.claim)),
    (SELECT count(*) FROM core_outbox.delivery d
     JOIN core_outbox.integration_outbox m ON m.id = d.message_id
     WHERE d.claim IS NULL
       AND m.status IN ('PENDING', 'FAILED', 'DEAD')
       AND (d.due_at, d.integration, d.failed, d.dead)
           IS DISTINCT FROM (m.due_at, m.integration_type, m.status = 'FAILED', m.status = 'DEAD')),
    (core_outbox.sequence_behind() > 0)::int::bigint,
    (SELECT (coalesce(sum(messages - 1), 0))::bigint
     FROM (SELECT count(*) AS messages FROM core_outbox.integration_outbox
           GROUP BY seq HAVING count(*) > 1) AS shared)
