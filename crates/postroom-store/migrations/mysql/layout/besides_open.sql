-- The same for rows that are open when the layout is applied. What is there already stays.
INSERT IGNORE INTO {database}.integration_outbox
    (source_event_id, source_stream_id, integration_type, event_type, payload, headers, tenant_id,
     correlation_id, causation_id, ordering_key)
SELECT LEFT(f.source_event_id, 100), LEFT(CONCAT({of_table}, '/', f.name), 200),
       LEFT(JSON_UNQUOTE(JSON_EXTRACT(f.besides, CONCAT('$[', other.place, ']'))), 120), LEFT(f.event_type, 120),
       f.payload, f.headers, LEFT(f.tenant_id, 60), LEFT(f.correlation_id, 120), LEFT(f.causation_id, 120),
       LEFT(COALESCE(f.ordering_key, f.source_stream_id), 200)
FROM ({whole}) AS f CROSS JOIN ({places}) AS other
WHERE f.status = 'PENDING' AND other.place < JSON_LENGTH(f.besides);
