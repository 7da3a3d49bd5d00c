-- Messages that two parcels name, as a restore of the data brings them while the triggers fire: $1 how
-- many at most.
SELECT named.id
FROM (SELECT unnest(refs) AS id FROM core_outbox.parcel OFFSET 0) AS named
GROUP BY named.id
HAVING count(*) > 1
LIMIT $1
