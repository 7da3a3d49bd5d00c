-- Messages with attempts, from an id on. ?1 after, ?2 messages.
SELECT DISTINCT message_id FROM outbox_attempt WHERE message_id > ?1 ORDER BY message_id LIMIT ?2
