-- Who has kept vacuum from cleaning for ten minutes or, where no time is known, for ten million
-- transactions. A role without pg_monitor sees its own sessions only.
SELECT 'the session with pid ' || pid || ' of ' || coalesce(usename, 'nobody') || ', open since '
       || to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
  AND xact_start < now() - interval '10 minutes'
UNION ALL
SELECT 'the prepared transaction ' || gid
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < now() - interval '10 minutes'
UNION ALL
SELECT 'the replication slot ' || slot_name
FROM pg_replication_slots
WHERE xmin IS NOT NULL AND age(xmin) > 10000000
