-- Indexes that a build left behind when it was cut off.
SELECT quote_ident(c.relname)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = 'core_outbox'::regnamespace AND NOT i.indisvalid
ORDER BY 1
