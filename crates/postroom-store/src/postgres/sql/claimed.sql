-- Ends both claims without reading a message: `content.rs` does that carefully then. $1 is what
-- the other ending takes.
SELECT t.message_id, t.rescues, t.due_at, t.claim, t.dispatch, t.lane, $1::int AS payload_limit
FROM taken t
