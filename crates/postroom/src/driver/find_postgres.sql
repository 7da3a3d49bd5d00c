-- The message that refused this one: the same, or one that only the old fence takes for the same: a
-- unique index on stream and event alone, of whatever name.
SELECT id, integration_type = $3 AND copy = $4
FROM core_outbox.integration_outbox
WHERE source_event_id = $1 AND source_stream_id = $2
  AND (integration_type = $3 AND copy = $4
       OR EXISTS (
           SELECT FROM pg_index i
           WHERE i.indrelid = 'core_outbox.integration_outbox'::regclass
             AND i.indisunique AND i.indpred IS NULL
             AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
                  FROM pg_attribute a
                  WHERE a.attrelid = i.indrelid
                    AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
                 = ARRAY['source_event_id', 'source_stream_id']))
ORDER BY 2 DESC
LIMIT 1
