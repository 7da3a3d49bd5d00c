-- Locks deliveries by their key, as far as {fence} holds; a clause that locks follows. {ids}.
SELECT message_id, seq, due_at, integration, state, claim IS NOT NULL
FROM outbox_delivery FORCE INDEX (PRIMARY) WHERE message_id IN ({ids}) AND {fence}
