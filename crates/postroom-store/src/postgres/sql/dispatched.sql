-- What jobs refer to: the messages that are still to be delivered, and those that were marked SENT
-- or DEAD while they were claimed. $1 ids.
SELECT m.seq, d.dispatch,
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       m.payload::text, m.headers::text,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       m.status, m.last_error
FROM core_outbox.integration_outbox m
-- Lateral and not flattened: one look-up by key per message under every plan.
CROSS JOIN LATERAL (
    SELECT dispatch FROM core_outbox.delivery
    WHERE seq = m.seq AND NOT dead
    OFFSET 0
) AS d
WHERE m.id = ANY ($1) AND m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD')
