-- A row that goes to several integrations is for the first. For each of the others there is a message in
    -- Postroom's own outbox. Its stream is the row, by table and key, so that each row has its own. One by one: an
    -- INSERT that selects keeps other producers from numbering theirs.
    IF {new.status} = 'PENDING' THEN
        SET @postroom_besides = {new.besides};
        WHILE JSON_LENGTH(@postroom_besides) > 0 DO
            INSERT IGNORE INTO {database}.integration_outbox
                (source_event_id, source_stream_id, integration_type, event_type, payload, headers, tenant_id,
                 correlation_id, causation_id, ordering_key)
            VALUES (LEFT({new.source_event_id}, 100), LEFT(CONCAT({of_table}, '/', {new.name}), 200),
                    LEFT(JSON_UNQUOTE(JSON_EXTRACT(@postroom_besides, '$[0]')), 120), LEFT({new.event_type}, 120),
                    {new.payload}, {new.headers}, LEFT({new.tenant_id}, 60), LEFT({new.correlation_id}, 120),
                    LEFT({new.causation_id}, 120), LEFT(COALESCE({new.ordering_key}, {new.source_stream_id}), 200));
            SET @postroom_besides = JSON_REMOVE(@postroom_besides, '$[0]');
        END WHILE;
    END IF;
