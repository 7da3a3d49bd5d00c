-- The claims that name a relay, and whether each is older than a claim time. ?1 relay, ?2 a claim time ago.
SELECT token, since < ?2 FROM outbox_claim INDEXED BY outbox_claim_relay WHERE relay = ?1
