-- After which number.
SELECT integration_type, COUNT(*), MAX(seq) FROM integration_outbox FORCE INDEX (PRIMARY)
WHERE seq > ? GROUP BY integration_type ORDER BY integration_type
