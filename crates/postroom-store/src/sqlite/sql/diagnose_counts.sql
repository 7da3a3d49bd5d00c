-- What reconciliation would mend, beside parcels: open messages that neither a parcel nor a delivery names,
-- deliveries without an open message, deliveries under a claim that does not exist. `in_neither.sql` ends
-- the first.
SELECT
    (SELECT count(*) FROM outbox_delivery AS d
     WHERE d.claim IS NULL
       AND NOT EXISTS (
           SELECT 1 FROM integration_outbox AS m
           WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD')
       )),
    (SELECT count(*) FROM outbox_delivery AS d
     WHERE d.claim IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = d.claim)),
    (SELECT count(*) FROM integration_outbox AS m WHERE
