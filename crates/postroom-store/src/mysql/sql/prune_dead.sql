-- Messages that can go, SENT or DEAD. {old} is a condition, {limit}. The index on the time of creation bounds
-- what is read.
SELECT seq, id FROM integration_outbox /*row*/ FORCE INDEX (outbox_created) WHERE {old} LIMIT {limit}
