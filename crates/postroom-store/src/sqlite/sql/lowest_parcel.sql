-- The lowest number that is in a parcel: a look-up per lane.
WITH RECURSIVE lane (name) AS (
    SELECT min(integration) FROM outbox_parcel
    UNION ALL
    SELECT (SELECT min(p.integration) FROM outbox_parcel AS p WHERE p.integration > lane.name)
    FROM lane WHERE lane.name IS NOT NULL
)
SELECT min((SELECT p.seq FROM outbox_parcel AS p
            WHERE p.integration = lane.name ORDER BY p.seq LIMIT 1))
FROM lane
