-- Deletes the parcels of a claim that is `whole`, and the claim. $1 token. Parcels go by their place:
-- they never change.
gone AS (
    DELETE FROM core_outbox.parcel
    WHERE ctid = ANY (ARRAY(SELECT place FROM held WHERE EXISTS (SELECT FROM whole)))
),
ended AS (
    DELETE FROM core_outbox.claim WHERE token = $1 AND EXISTS (SELECT FROM whole)
)
