-- Ends the look for edits. Those of messages that somebody holds in a parcel stay until the attempt is
-- over: it may end without a word on them, and the parcel with it. What any claim has recorded, or has a
-- delivery, is in nobody's hands: nothing is put into a parcel after that. Those of messages that were
-- delivered, and do not say so yet, stay until they do.
NOT core_outbox.is_noted_sent(e.message_id) AND
-- An array, read once; IS TRUE keeps the look at edits a look-up in a hash, and OFFSET 0 those at messages and
-- deliveries look-ups by key, under every plan.
e.message_id <> ALL (ARRAY(
    SELECT f.message_id
    FROM core_outbox.in_flight f
    CROSS JOIN LATERAL (
        SELECT m.settled FROM core_outbox.integration_outbox m WHERE m.id = f.message_id OFFSET 0
    ) AS m
    WHERE (f.message_id IN (SELECT message_id FROM core_outbox.pending_edit)) IS TRUE
      AND m.settled IS NULL
      AND NOT EXISTS (
          SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id OFFSET 0
      )
))
