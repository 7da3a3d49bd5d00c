-- What reconciliation would mend: open messages without a delivery, deliveries without an open
-- message, deliveries under a claim that does not exist.
SELECT
    (SELECT count(*) FROM core_outbox.integration_outbox m
     WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
       AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.seq = m.seq)),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NULL
       AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m
                       WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD'))),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NOT NULL
       AND NOT EXISTS (SELECT FROM core_outbox.claim c WHERE c.token = d.claim))
