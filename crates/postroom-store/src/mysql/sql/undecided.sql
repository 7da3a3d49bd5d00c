-- Which of these messages were also changed while they were in other lanes than these: their parcel may be
-- there, and only the holder of that lane can know whether somebody has it. {ids}, {lanes}.
SELECT DISTINCT message_id FROM outbox_pending_edit FORCE INDEX (outbox_pending_edit_message)
WHERE message_id IN ({ids}) AND integration NOT IN ({lanes})
