-- Keeps a relay's row, and with it every claim that names it. ?1 relay, ?2 name, ?3 now, ?4 until,
-- ?5 version, ?6 lanes.
INSERT INTO outbox_relay (id, name, started_at, until, version, lanes)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE
SET name = excluded.name, until = excluded.until, version = excluded.version, lanes = excluded.lanes
