-- Keeps a relay's row, and with it every claim that names it. $1 relay, $2 name, $3 claim time in
-- seconds, $4 version, $5 lanes, $6 for how many seconds expired rows are kept.
WITH forgotten AS (
    DELETE FROM core_outbox.relay
    WHERE id = ANY (ARRAY(
        SELECT old.id FROM core_outbox.relay old
        WHERE old.until < now() - make_interval(secs => CASE WHEN old.lanes > 0 THEN $6::float8 ELSE 0 END)
          AND old.id <> $1
          AND old.id <> ALL (ARRAY(SELECT relay FROM core_outbox.claim))
        -- Locked rows are about to be revived, or another heartbeat deletes them.
        FOR UPDATE SKIP LOCKED
    ))
)
INSERT INTO core_outbox.relay (id, name, started_at, until, version, lanes)
VALUES ($1, $2, now(), now() + make_interval(secs => $3), $4, $5)
ON CONFLICT (id) DO UPDATE
SET name = excluded.name, until = excluded.until, version = excluded.version, lanes = excluded.lanes
