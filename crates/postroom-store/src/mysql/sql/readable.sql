-- Waits for whoever has locked the table of messages as a whole, for as long as the session may. On PostgreSQL the
-- statement that reads does that beside the claim, which is given back where it fails.
SELECT 1 FROM integration_outbox /*row*/ LIMIT 1
