,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       m.seq, m.headers IS NOT NULL AS has_headers,
       -- What a parcel may name by mistake: a message that has a delivery, is due later or goes to a
       -- lane by now that this claim does not hold. OFFSET 0: one look-up by key under every plan.
       m.due_at > now()
           OR core_outbox.lane_of(m.integration_type) <> ALL (ARRAY(SELECT lane FROM span))
           OR EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id OFFSET 0)
           AS is_elsewhere
FROM core_outbox.integration_outbox m
WHERE m.id = ANY (ARRAY(
    SELECT p.id
    FROM span
    CROSS JOIN LATERAL (
        SELECT unnest(o.refs) AS id FROM core_outbox.parcel o
        WHERE o.lane = span.lane AND o.number BETWEEN span.first AND span.last
          AND ((o.lane, o.number) IN (SELECT lane, number FROM held)) IS TRUE
        OFFSET 0
    ) AS p
))
  -- A message that was closed by hand while it was claimed counts as gone.
  AND m.status IN ('PENDING', 'FAILED')
