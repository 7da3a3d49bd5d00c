-- What jobs refer to: the messages that are still to be delivered, and those that were marked SENT
-- or DEAD while they were claimed. $1 ids.
SELECT m.seq, coalesce(d.dispatch, 0),
       m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
       m.payload::text, m.headers::text,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       m.status, m.last_error
FROM core_outbox.integration_outbox m
-- Lateral and not flattened: one look-up by key per message under every plan.
LEFT JOIN LATERAL (
    SELECT dispatch, state FROM core_outbox.delivery WHERE message_id = m.id OFFSET 0
) AS d ON true
WHERE m.id = ANY ($1)
  -- What is open and has no delivery is in a parcel, and was never dispatched.
  AND CASE WHEN d.state IS NULL THEN m.status IN ('PENDING', 'FAILED')
           ELSE d.state <> 'd' AND m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD') END
