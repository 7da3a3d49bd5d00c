-- Raises the low-water marks of lanes. The lanes are locked, by a statement before this one.
-- $1 integrations. A producer's parcel gets its number after its transaction has an id: once every
-- transaction that had one when a mark was noted has ended, no parcel below that mark can appear. The
-- low-water mark never passes a parcel that exists. A horizon that lies ahead is that of another server,
-- whose data was restored here: waiting begins again.
WITH now AS MATERIALIZED (
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS running,
           pg_snapshot_xmax(pg_current_snapshot()) AS next
)
UPDATE core_outbox.lane_cursor c
SET low_water = CASE WHEN now.running >= c.horizon
                     THEN greatest(c.low_water, least(c.next_low_water, coalesce((
                         SELECT p.number - 1 FROM core_outbox.parcel p
                         WHERE p.lane = c.lane AND p.number > c.low_water
                         ORDER BY p.lane, p.number LIMIT 1
                     ), c.next_low_water)))
                     ELSE c.low_water END,
    next_low_water = CASE WHEN now.running >= c.horizon OR now.next < c.horizon
                          THEN c.mark ELSE c.next_low_water END,
    horizon = CASE WHEN now.running >= c.horizon OR now.next < c.horizon
                   THEN now.next ELSE c.horizon END
FROM now
WHERE c.lane = ANY (ARRAY(SELECT core_outbox.lane_of(unnest($1::text[]))))
  AND c.low_water < c.mark
