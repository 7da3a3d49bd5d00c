-- The message that refused this one: the same, or one that only the old fence takes for the same.
SELECT id, integration_type = $3 AND copy = $4
FROM core_outbox.integration_outbox
WHERE source_event_id = $1 AND source_stream_id = $2
  AND (integration_type = $3 AND copy = $4
       OR to_regclass('core_outbox.ux_outbox_source') IS NOT NULL)
