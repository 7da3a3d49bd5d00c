-- The same where no history is kept. A DELETE takes the name of an index only in this form. {seqs}.
DELETE m FROM integration_outbox AS m FORCE INDEX (PRIMARY) WHERE m.seq IN ({seqs})
