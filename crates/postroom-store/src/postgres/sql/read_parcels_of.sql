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
