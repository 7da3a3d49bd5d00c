-- Deletes the parcels of a claim that is `whole`, and the claim. $1 token. Most claims are of one lane: the
-- parcels of the first lane are deleted in one pass, read as in `held_parcels.sql`. Those of other lanes go
-- by their place, which never changes.
over AS MATERIALIZED (
    SELECT named.lane, named.number, named.lane = mine.lane AS is_first
    FROM mine CROSS JOIN named
    WHERE EXISTS (SELECT FROM whole)
),
gone AS (
    DELETE FROM core_outbox.parcel
    WHERE lane = (SELECT lane FROM mine)
      AND number BETWEEN (SELECT min(number) FROM over WHERE is_first)
                     AND (SELECT max(number) FROM over WHERE is_first)
      AND (number IN (SELECT number FROM over WHERE is_first)) IS TRUE
),
gone_besides AS (
    DELETE FROM core_outbox.parcel
    WHERE ctid = ANY (ARRAY(
        SELECT p.ctid
        FROM over
        CROSS JOIN LATERAL (
            SELECT ctid FROM core_outbox.parcel o
            WHERE o.lane = over.lane AND o.number = over.number
            OFFSET 0
        ) AS p
        WHERE NOT over.is_first
    ))
),
ended AS (
    DELETE FROM core_outbox.claim WHERE token = $1 AND EXISTS (SELECT FROM whole)
)
