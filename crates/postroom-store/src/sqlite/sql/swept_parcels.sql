-- Ends the statement that reads what a sweep found. ?1 parcels.
FROM json_each(?1) AS named
CROSS JOIN outbox_parcel AS p
    ON p.integration = json_extract(named.value, '$[0]')
   AND p.seq = json_extract(named.value, '$[1]')
   AND p.message_id = json_extract(named.value, '$[2]')
LEFT JOIN integration_outbox AS m ON m.seq = p.seq AND m.id = p.message_id
