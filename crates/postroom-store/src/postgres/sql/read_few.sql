-- Reads the messages of a claim that `take_few.sql` made. $1 token, $2 payload limit. A statement of its own, as
-- `read_parcels.sql`: what was changed by hand while the take waited for its lane is seen. It has little to set
-- up: content that may become long as text is left out, and `read_carefully` of `content.rs` reads it.
WITH span AS MATERIALIZED (
    SELECT held.lane, held.number
    FROM core_outbox.claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.numbers) AS held (lane, number)
    WHERE c.token = $1
)
