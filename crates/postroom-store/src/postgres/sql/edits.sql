-- Changes by hand that are to be followed. $1 integrations, or null for all lanes, $2 edits at most, $3 after
-- which of them, $4 messages, or null for all. `undecided.sql` follows.
SELECT e.id, e.lane, e.message_id
FROM core_outbox.pending_edit e
WHERE ($1::text[] IS NULL
       OR e.lane = ANY (ARRAY(SELECT core_outbox.lane_of(unnest($1::text[])))))
  AND ($4::/*id*/uuid[] IS NULL OR e.message_id = ANY ($4))
  AND
