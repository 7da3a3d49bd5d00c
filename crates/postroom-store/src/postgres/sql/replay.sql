-- Sent messages again, as new rows. $1 ids, $2 whether event ids are fresh, $3 action (for
-- `record_action.sql`, which follows), $4 the header that names the row each was made from.
-- Replays take turns by a lock, so that two of them never give the same `copy`.
WITH sent AS (
    SELECT m.*,
           (SELECT max(o.copy) FROM core_outbox.integration_outbox o
            WHERE o.source_event_id = m.source_event_id
              AND o.source_stream_id = m.source_stream_id
              AND o.integration_type = m.integration_type)
           + row_number() OVER (
               PARTITION BY m.source_event_id, m.source_stream_id, m.integration_type
               ORDER BY m.seq
             ) AS next_copy
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY ($1) AND m.status = 'SENT'
      -- Marked SENT by hand during an attempt: that attempt decides.
      AND NOT EXISTS (
          SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id AND d.claim IS NOT NULL
          UNION ALL
          SELECT FROM core_outbox.in_flight f
          WHERE f.message_id = m.id AND m.settled IS NULL
      )
),
changed AS (
    INSERT INTO core_outbox.integration_outbox (
        source_stream_id, source_event_id, integration_type, event_type, payload, headers,
        tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
        schema_version, copy, occurred_at, max_attempts
    )
    SELECT source_stream_id,
           CASE WHEN $2 THEN core_outbox.uuid_v7()::text ELSE source_event_id END,
           integration_type, event_type, payload,
           CASE jsonb_typeof(headers) WHEN 'object' THEN headers ELSE '{}' END
               || jsonb_build_object($4::text, id),
           tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
           schema_version, CASE WHEN $2 THEN 0 ELSE next_copy END, occurred_at, max_attempts
    FROM sent
    ORDER BY seq
    RETURNING id
)
