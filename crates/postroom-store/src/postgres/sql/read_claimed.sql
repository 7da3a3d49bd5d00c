-- What was claimed without being read. $1 payload limit (for what follows), $2 ids of messages,
-- $3 rescues, $4 due times, $5 claims, $6 dispatches, $7 lanes, $8 caution, $9 whether they come from
-- parcels.
WITH taken AS (
    SELECT claimed.*, $8::int AS caution, $9::boolean AS is_fresh
    FROM unnest($2::/*id*/uuid[], $3::int[], $4::timestamptz[], $5::uuid[], $6::int[], $7::bigint[])
        AS claimed (message_id, rescues, due_at, claim, dispatch, lane)
)
