-- SENT messages that can go; a clause that locks follows. The index on the time of creation bounds what is
-- read. A message that was set to SENT by hand may say no time. {before}, {limit}.
SELECT seq FROM integration_outbox /*row*/ FORCE INDEX (outbox_created)
WHERE created_at < {before} AND status = 'SENT' AND COALESCE(sent_at, created_at) < {before}
LIMIT {limit}
