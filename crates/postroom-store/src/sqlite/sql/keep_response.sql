-- Keeps what the receiver answered with the latest attempt. ?1 id of the message, ?2 response.
UPDATE outbox_attempt SET response = ?2
WHERE message_id = ?1 AND response IS NULL
  AND number = (SELECT max(a.number) FROM outbox_attempt AS a WHERE a.message_id = ?1)
