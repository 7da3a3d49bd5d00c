-- What comes from a layout is made again whenever that changes.
DROP TRIGGER IF EXISTS postroom_feed ON {table};
DROP TRIGGER IF EXISTS postroom_follow ON {table};
DROP TRIGGER IF EXISTS postroom_emptied ON {table};
DROP TRIGGER IF EXISTS postroom_wake ON {table};
DROP VIEW IF EXISTS {schema}.claimed;
DROP VIEW IF EXISTS {schema}.messages;
DROP VIEW IF EXISTS {schema}.integration_outbox;
DO $drop$
DECLARE
    made regprocedure;
BEGIN
    FOR made IN SELECT oid FROM pg_proc
                WHERE pronamespace = '{schema}'::regnamespace AND (proname LIKE 'row\_%' OR proname IN ('enqueue', 'poll', 'follow_change', 'feed_ledger'))
    LOOP
        EXECUTE format('DROP FUNCTION %s', made);
    END LOOP;
END
$drop$;
