FROM core_outbox.integration_outbox m
WHERE m.id = ANY (ARRAY(
    SELECT unnest(p.refs)
    FROM span
    -- OFFSET 0: one look-up by key under every plan.
    CROSS JOIN LATERAL (
        SELECT o.refs FROM core_outbox.parcel o
        WHERE o.lane = span.lane AND o.number = span.number
        OFFSET 0
    ) AS p
))
  -- A message that was closed by hand while it was claimed counts as gone.
  AND m.status IN ('PENDING', 'FAILED')
