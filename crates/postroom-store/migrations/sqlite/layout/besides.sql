    -- A row that goes to several integrations is for the first. For each of the others there is a message in
    -- Postroom's own outbox. Its stream is the row, by table and key, so that each row has its own. What that table's
    -- constraints would refuse is cut to size: the producer's statement must not fail.
    INSERT INTO integration_outbox
        (source_event_id, source_stream_id, integration_type, event_type, payload, headers, tenant_id,
         correlation_id, causation_id, ordering_key)
    SELECT substr(f.source_event_id, 1, 100), substr({of_table} || '/' || f.id, 1, 200), substr(other.value, 1, 120),
           substr(f.event_type, 1, 120),
           CASE WHEN json_valid(CAST(f.payload AS TEXT)) THEN CAST(f.payload AS TEXT) ELSE 'null' END,
           CASE WHEN json_valid(CAST(f.headers AS TEXT)) THEN CAST(f.headers AS TEXT) END,
           substr(f.tenant_id, 1, 60), substr(f.correlation_id, 1, 120), substr(f.causation_id, 1, 120),
           substr(coalesce(f.ordering_key, f.source_stream_id), 1, 200)
    FROM ({rows}) AS f
    CROSS JOIN json_each(f.besides) AS other
    WHERE f.status = 'PENDING' AND other.value IS NOT NULL
      -- No ON CONFLICT: that of the producer's statement would override it.
      AND NOT EXISTS (SELECT 1 FROM integration_outbox AS o
                      WHERE o.source_event_id = substr(f.source_event_id, 1, 100)
                        AND o.source_stream_id = substr({of_table} || '/' || f.id, 1, 200)
                        AND o.integration_type = substr(other.value, 1, 120) AND o.copy = 0);
