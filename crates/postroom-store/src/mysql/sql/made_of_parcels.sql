-- Makes deliveries. Whoever makes them for messages that may have one says what becomes of that: see
-- `keep_delivery.sql` and `follow.sql`. {rows}.
INSERT INTO outbox_delivery
    (message_id, seq, due_at, since, rescues, dispatch, bytes, state, integration)
VALUES {rows}
