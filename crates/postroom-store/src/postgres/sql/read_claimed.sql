-- What was claimed without being read. $1 payload limit (for what follows), $2 numbers, $3 ids of
-- messages, $4 rescues, $5 due times, $6 claims, $7 dispatches, $8 caution.
WITH taken AS (
    SELECT claimed.*, $8::int AS caution
    FROM unnest($2::bigint[], $3::uuid[], $4::int[], $5::timestamptz[], $6::uuid[], $7::int[])
        AS claimed (seq, message_id, rescues, due_at, claim, dispatch)
)
