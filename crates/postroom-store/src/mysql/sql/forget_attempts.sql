-- The attempts of messages that leave. {seqs}.
DELETE a FROM outbox_attempt AS a FORCE INDEX (PRIMARY) WHERE a.seq IN ({seqs})
