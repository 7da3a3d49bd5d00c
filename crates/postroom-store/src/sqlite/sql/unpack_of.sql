-- The parcels that name these messages, in the lanes of those. ?1 ids.
SELECT p.integration, p.seq, p.message_id
FROM json_each(?1) AS named
CROSS JOIN integration_outbox AS m ON m.id = named.value
CROSS JOIN outbox_parcel AS p
    ON p.integration = m.integration_type AND p.seq = m.seq AND p.message_id = m.id
