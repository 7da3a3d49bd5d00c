,
       m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
       m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, m.max_attempts, m.created_at,
       m.seq, m.headers IS NOT NULL AS has_headers,
       -- What a parcel may name by mistake: a message that is due later, has a delivery, or goes by now to a
       -- lane that is not in `span`, which has those of the claim. OFFSET 0: one look-up by key under every
       -- plan.
       m.due_at > now()
           OR core_outbox.lane_of(m.integration_type) <> ALL (ARRAY(SELECT lane FROM span))
           OR EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id OFFSET 0)
           AS is_elsewhere
