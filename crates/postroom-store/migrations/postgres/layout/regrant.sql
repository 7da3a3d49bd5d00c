-- What was made again is for those who have rights on the ledger: relays keep theirs.
DO $grants$
DECLARE
    relay name;
BEGIN
    FOR relay IN SELECT DISTINCT r.rolname
                 FROM pg_class c
                 CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                 JOIN pg_roles r ON r.oid = a.grantee
                 WHERE c.oid = '{schema}.parcel'::regclass AND a.privilege_type = 'DELETE' AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT SELECT, UPDATE ON {schema}.integration_outbox TO %I', relay);
        EXECUTE format('GRANT SELECT ON {schema}.messages TO %I', relay);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO %I', relay);
    END LOOP;
END
$grants$;
