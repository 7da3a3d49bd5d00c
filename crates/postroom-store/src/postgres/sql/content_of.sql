
    FROM core_outbox.integration_outbox o
    WHERE o.id = t.message_id
      -- A message that was closed by hand while it was claimed counts as gone.
      AND o.status IN ('PENDING', 'FAILED')
    OFFSET 0
) AS m ON true
