-- Indexes that name a column which changes, in keys or predicate: recording an outcome must touch
-- each of them.
SELECT quote_ident(c.relname), string_agg(DISTINCT a.attname::text, ', ' ORDER BY a.attname::text)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
WHERE i.indrelid = to_regclass('core_outbox.integration_outbox')
  AND a.attname IN ('status', 'due_at', 'attempts', 'sent_at', 'updated_at', 'last_error',
                    'settled', 'locked_at', 'locked_by')
  AND (a.attnum = ANY (i.indkey)
       -- What an expression or a predicate names.
       OR EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
                    AND d.refobjsubid = a.attnum))
GROUP BY c.relname
ORDER BY 1
