-- Changes by hand, in the order in which they were made. {lanes} is a condition, {after}, {rows}.
SELECT id, integration, message_id FROM outbox_pending_edit
WHERE {lanes} AND id > {after} ORDER BY id LIMIT {rows}
