-- Unique indexes on stream and event alone: they let one event reach one integration only.
SELECT quote_ident(c.relname), k.oid IS NOT NULL
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype = 'u'
WHERE i.indrelid = to_regclass('core_outbox.integration_outbox')
  AND i.indisunique AND i.indpred IS NULL
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
       FROM pg_attribute a
       WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
      = ARRAY['source_event_id', 'source_stream_id']
ORDER BY 1
