-- Due deliveries of one lane, or rescued ones; a clause that locks follows, where the server can pass over
-- what others have locked. The index is named: with statistics that were taken while there was little to
-- do, the server would read, and lock, the whole backlog. Differs from PostgreSQL's, which also claims and
-- reads them: there is no RETURNING, and no UPDATE of what another statement has picked. Queue, lane, rows.
SELECT message_id, seq, due_at, rescues, CAST(bytes AS SIGNED), dispatch
FROM outbox_delivery FORCE INDEX (outbox_delivery_queue)
WHERE queue = ? AND integration = ? AND due_at <= UTC_TIMESTAMP(6)
ORDER BY due_at, seq LIMIT ?
