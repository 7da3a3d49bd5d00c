SELECT integration,
       count(*) FILTER (WHERE claim IS NULL AND NOT dead AND NOT failed) AS pending,
       count(*) FILTER (WHERE claim IS NOT NULL) AS claimed,
       count(*) FILTER (WHERE claim IS NULL AND failed) AS failed,
       count(*) FILTER (WHERE claim IS NULL AND dead) AS dead,
       greatest(extract(epoch FROM now()
           - min(due_at) FILTER (WHERE claim IS NULL AND NOT dead)) * 1000, 0)::bigint AS lag_ms
FROM core_outbox.delivery
GROUP BY integration
ORDER BY integration
