-- What reconciliation would mend, beside parcels: deliveries without an open message, deliveries under a
-- claim that does not exist, open messages that neither a parcel nor a delivery names (`in_neither.sql`
-- follows), and deliveries that say something else than their message (`reconcile_unlike.sql`).
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
