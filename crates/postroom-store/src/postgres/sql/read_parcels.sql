-- Reads the messages of a claim on parcels. $1 payload limit, $2 token. All by one array of keys: looked up
-- one by one beside their parcels they took half as long again. What the claim names and this does not
-- return is gone or was closed by hand; `content.rs` counts. What a payload or headers may cost as text is
-- said in `content.rs`, which puts them in.
--
-- A lane's parcels are read from the first to the last that the claim names, and looked up in a hash: mostly
-- nothing else lies between. Looked up by an array of numbers, the whole lane would be read under the
-- statistics of an emptied table.
WITH held AS MATERIALIZED (
    SELECT held.lane, held.number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.token = $2
),
span AS MATERIALIZED (
    SELECT lane, min(number) AS first, max(number) AS last FROM held GROUP BY lane
)
