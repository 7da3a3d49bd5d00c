-- Makes deliveries of what is open in the parcels that name these messages, as far as nobody holds them.
-- The lanes are locked, by a statement before this one. $1 ids, whose lanes they are. Messages that share a parcel
-- share all bits of their seq but the last six, so few are looked into; in a table that somebody else made, all
-- parcels of these lanes.
WITH claimed AS MATERIALIZED (
    SELECT held.lane, held.number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.lanes IS NOT NULL
),
gone AS (
    DELETE FROM core_outbox.parcel
    WHERE lane = ANY (ARRAY(
              SELECT core_outbox.lane_of(m.integration_type) FROM core_outbox.integration_outbox m
              WHERE m.id = ANY ($1)
          ))
      /*ours:*/
      -- IS TRUE as in `settle_parcels_sent.sql`.
      AND (core_outbox.parcel_group(lowest) IN (
          SELECT core_outbox.parcel_group(m.seq) FROM core_outbox.integration_outbox m
          WHERE m.id = ANY ($1)
      )) IS TRUE
      /*:ours*/
      AND refs && $1
      AND NOT (lane, number) IN (SELECT lane, number FROM claimed)
    RETURNING refs
),
named AS MATERIALIZED (SELECT unnest(refs) AS id, 0 AS rescues FROM gone),
