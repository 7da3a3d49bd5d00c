-- Ends the look for edits. Those of messages that somebody holds in a parcel stay until the attempt is
-- over: it may end without a word on them, and the parcel with it. What was recorded under the claim, or
-- has a delivery, is in nobody's hands. Those of messages that were delivered, and do not say so yet, stay
-- until they do.
NOT core_outbox.is_noted_sent(e.message_id) AND
e.message_id NOT IN (
    SELECT f.message_id
    FROM core_outbox.in_flight f
    JOIN core_outbox.integration_outbox m ON m.id = f.message_id
    WHERE f.message_id = ANY (ARRAY(SELECT message_id FROM core_outbox.pending_edit))
      AND m.settled IS DISTINCT FROM f.token
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id)
)
