-- A sent message again, as a new row. ?1 the id of the first, ?2 the new id, ?3 a fresh event id or null,
-- ?4 now, ?5 the path of the header that names the row it was made from.
INSERT INTO integration_outbox (
    id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
    tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
)
SELECT ?2, m.source_stream_id, coalesce(?3, m.source_event_id), m.integration_type,
       m.event_type, m.payload,
       json_set(CASE json_type(m.headers) WHEN 'object' THEN m.headers ELSE '{}' END, ?5, m.id),
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version,
       CASE WHEN ?3 IS NULL
            THEN (SELECT max(o.copy) + 1 FROM integration_outbox AS o
                  WHERE o.source_event_id = m.source_event_id
                    AND o.source_stream_id = m.source_stream_id
                    AND o.integration_type = m.integration_type)
            ELSE 0 END,
       m.occurred_at, ?4, m.max_attempts
FROM integration_outbox AS m
WHERE m.id = ?1 AND m.status = 'SENT'
  -- Marked SENT by hand during an attempt: that attempt decides.
  AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d
                  WHERE d.message_id = m.id AND d.claim IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                  CROSS JOIN outbox_parcel AS p
                      ON p.integration = l.integration AND p.seq = m.seq AND p.message_id = m.id)
