-- Roles that read or write the table and are subject to its row-level security: the one that asks, and the owner of
-- the view, with whose rights rows are read through it. For each command whether any policy lets rows through, and
-- whether all. $1 the table, $2 the view, $3 the commands as `pg_policy` has them.
WITH secured AS (
    SELECT oid, relowner, relforcerowsecurity FROM pg_class
    WHERE oid = to_regclass($1) AND relrowsecurity
),
subject AS (
    SELECT r.oid, r.rolname FROM secured t CROSS JOIN pg_roles r
    WHERE (r.rolname = current_user
           OR r.oid = (SELECT v.relowner FROM pg_class v WHERE v.oid = to_regclass($2)))
      AND NOT (r.rolsuper OR r.rolbypassrls)
      AND (t.relforcerowsecurity OR NOT pg_has_role(r.oid, t.relowner, 'USAGE'))
),
policy AS (
    SELECT s.oid AS role, p.polcmd, p.polpermissive,
           pg_get_expr(p.polqual, p.polrelid) = 'true'
               AND coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true' AS is_open
    FROM subject s
    CROSS JOIN secured t
    JOIN pg_policy p ON p.polrelid = t.oid AND p.polqual IS NOT NULL
    WHERE EXISTS (SELECT FROM unnest(p.polroles) AS of (role)
                  WHERE of.role = 0 OR pg_has_role(s.oid, of.role, 'USAGE'))
)
SELECT quote_ident(s.rolname), bool_and(found.some), bool_and(found.every)
FROM subject s
CROSS JOIN unnest($3::text[]) AS asked (command)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE p.polpermissive) > 0 AS some,
           coalesce(bool_or(p.is_open) FILTER (WHERE p.polpermissive), false)
               AND coalesce(bool_and(p.is_open) FILTER (WHERE NOT p.polpermissive), true) AS every
    FROM policy p
    WHERE p.role = s.oid AND p.polcmd::text IN ('*', asked.command)
) AS found
GROUP BY s.rolname
HAVING NOT bool_and(found.every)
ORDER BY s.rolname
