-- ?1 id of the message, ?2 attempts kept.
DELETE FROM outbox_attempt
WHERE message_id = ?1
  AND number <= (SELECT max(number) FROM outbox_attempt WHERE message_id = ?1) - ?2
