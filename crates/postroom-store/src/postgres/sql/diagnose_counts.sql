-- What reconciliation would mend: open messages that neither a parcel nor a delivery names, deliveries
-- and parcels without an open message, deliveries under a claim that does not exist, deliveries that
-- nobody holds and that say something else than their open message; a sequence behind the numbers in
-- use, messages that two parcels name, and messages that share their number with another. A change by
-- hand that is still to be followed is none of these.
WITH named AS MATERIALIZED (
    SELECT unnest(refs) AS id, lane, number FROM core_outbox.parcel
)
SELECT
    (SELECT count(*) FROM core_outbox.integration_outbox m
     WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
       AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id)
       AND NOT EXISTS (SELECT FROM named WHERE named.id = m.id)
       AND NOT core_outbox.is_noted_sent(m.id)
       AND NOT EXISTS (SELECT FROM core_outbox.pending_edit e WHERE e.message_id = m.id)),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NULL
       AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m
                       WHERE m.id = d.message_id AND m.status IN ('PENDING', 'FAILED', 'DEAD'))
       AND NOT EXISTS (SELECT FROM core_outbox.pending_edit e WHERE e.message_id = d.message_id))
    + (SELECT count(*) FROM core_outbox.parcel p
       WHERE NOT EXISTS (SELECT FROM core_outbox.integration_outbox m WHERE m.id = ANY (p.refs))),
    (SELECT count(*) FROM core_outbox.delivery d
     WHERE d.claim IS NOT NULL
       AND NOT EXISTS (SELECT FROM core_outbox.claim c WHERE c.token = d.claim)),
    (SELECT count(*) FROM core_outbox.delivery d
     JOIN core_outbox.integration_outbox m ON m.id = d.message_id
     WHERE d.claim IS NULL
       AND m.status IN ('PENDING', 'FAILED', 'DEAD')
       AND (d.due_at, d.integration, d.lane, d.state)
           IS DISTINCT FROM (m.due_at, m.integration_type, core_outbox.lane_of(m.integration_type),
                             core_outbox.state_of(m.status))
       AND NOT EXISTS (SELECT FROM core_outbox.pending_edit e WHERE e.message_id = m.id)),
    (core_outbox.numbers_behind() > 0)::int::bigint,
    (SELECT count(*) FROM (
         SELECT id FROM named GROUP BY id HAVING count(*) > 1
     ) AS doubled)
    /*ours:*/
    + (SELECT coalesce(sum(messages - 1), 0)::bigint
       FROM (SELECT count(*) AS messages FROM core_outbox.integration_outbox
             GROUP BY seq HAVING count(*) > 1) AS shared)
    /*:ours*/
