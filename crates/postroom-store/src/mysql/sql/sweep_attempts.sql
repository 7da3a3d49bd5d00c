-- Messages that have attempts, some at a time. {after} which number, {messages} at most.
SELECT DISTINCT seq FROM outbox_attempt FORCE INDEX (PRIMARY)
WHERE seq > {after} ORDER BY seq LIMIT {messages}
