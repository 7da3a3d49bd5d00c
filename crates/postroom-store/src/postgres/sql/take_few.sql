-- Takes all parcels above the marks of their lanes, where they are few; nothing otherwise, and then
-- `take_parcels.sql` follows. $1 token, $2 worker, $3 relay, $4 integrations, $5 rows over all, $6 bytes over
-- all. A relay that slept is mostly woken for one parcel, and to set up the window functions and subqueries of
-- a whole take would take longer than the rest of the way to its delivery.
--
-- One statement and no content, as in `take_parcels.sql`. What else there may be is not looked for: the relay
-- looks again after it (`wake.rs`).
WITH here AS MATERIALIZED (
    SELECT c.lane, c.mark FROM core_outbox.lane_cursor c
    WHERE c.lane = ANY (ARRAY(SELECT core_outbox.lane_of(unnest($4::text[]))))
    ORDER BY c.lane
    FOR UPDATE
),
due AS MATERIALIZED (
    SELECT p.lane, p.number, p.messages, p.bytes
    FROM here
    CROSS JOIN LATERAL (
        SELECT o.lane, o.number, cardinality(o.refs) AS messages, o.bytes
        FROM core_outbox.parcel o
        WHERE o.lane = here.lane AND o.number > here.mark AND o.integration = ANY ($4)
        ORDER BY o.lane, o.number
        -- One more than are few.
        LIMIT 9
    ) AS p
),
taken AS MATERIALIZED (
    SELECT count(*) AS parcels, sum(messages) AS messages,
           array_agg(lane) AS lanes, array_agg(number) AS numbers
    FROM due
    HAVING count(*) BETWEEN 1 AND 8
       AND sum(messages) <= $5::bigint AND sum(bytes::float8) <= $6::bigint::float8
),
held AS (
    -- The relay's id as in `take.sql`.
    INSERT INTO core_outbox.claim (token, worker, since, relay, lanes, numbers, messages)
    SELECT $1, $2, now(), (SELECT id FROM core_outbox.relay WHERE id = $3 AND until >= now()),
           lanes, numbers, messages
    FROM taken
),
moved AS (
    UPDATE core_outbox.lane_cursor c
    SET mark = greatest(c.mark, (SELECT max(number) FROM due WHERE due.lane = c.lane))
    WHERE c.lane = ANY ((SELECT lanes FROM taken)::bigint[])
)
SELECT parcels, messages FROM taken
