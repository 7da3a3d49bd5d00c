-- Keeps a relay's row, and with it every claim that names it; then the claims that name it, and whether each
-- is older than a claim time; then relays that are to be forgotten. Three statements in one round trip: the
-- row is written before the claims are read, so that what a rescue did for which it had to wait is seen.
-- {relay}, {name}, {claim_time} and {kept} in microseconds, {version}, {lanes}, {forgettable}.
INSERT INTO outbox_relay (id, name, started_at, until, version, lanes)
VALUES ({relay}, {name}, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {claim_time} MICROSECOND,
        '{version}', {lanes})
ON DUPLICATE KEY UPDATE name = VALUES(name), until = VALUES(until), version = VALUES(version),
    lanes = VALUES(lanes);
SELECT token, since < UTC_TIMESTAMP(6) - INTERVAL {claim_time} MICROSECOND
FROM outbox_claim FORCE INDEX (outbox_claim_relay) WHERE relay = {relay};
SELECT r.id, {forgettable} FROM outbox_relay AS r
WHERE r.until < UTC_TIMESTAMP(6) - INTERVAL IF(r.lanes > 0, {kept}, 0) MICROSECOND
  AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.relay = r.id)
