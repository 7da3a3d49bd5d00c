-- Parcels that nobody holds and none of whose messages exists: the ledger was restored without them. The
-- lanes are locked, by a statement before this one.
DELETE FROM core_outbox.parcel p
WHERE NOT (p.lane, p.number) IN (
          SELECT held.lane, held.number
          FROM core_outbox.claim c
          CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
          WHERE c.lanes IS NOT NULL
      )
  AND NOT EXISTS (SELECT FROM core_outbox.integration_outbox m WHERE m.id = ANY (p.refs))
RETURNING p.number
