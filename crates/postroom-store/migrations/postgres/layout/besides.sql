-- A row that goes to several integrations is for the first. For each of the others there is a message in
    -- Postroom's own outbox. Its stream is the row, by table and key, so that each row has its own.
    INSERT INTO core_outbox.integration_outbox
        (source_event_id, source_stream_id, integration_type, event_type, payload, headers, tenant_id,
         correlation_id, causation_id, ordering_key)
    SELECT pg_catalog.left(f.source_event_id, 100), pg_catalog.left(pg_catalog.concat({of_table}, '/', f.id), 200),
           pg_catalog.left(other.integration, 120), pg_catalog.left(f.event_type, 120),
           coalesce(f.payload, 'null'), f.headers, pg_catalog.left(f.tenant_id, 60),
           pg_catalog.left(f.correlation_id, 120), pg_catalog.left(f.causation_id, 120),
           pg_catalog.left(coalesce(f.ordering_key, f.source_stream_id), 200)
    FROM ({whole}) AS f
    CROSS JOIN LATERAL pg_catalog.unnest(f.besides) AS other (integration)
    WHERE f.status OPERATOR(pg_catalog.=) 'PENDING' AND other.integration IS NOT NULL
    ON CONFLICT DO NOTHING;
