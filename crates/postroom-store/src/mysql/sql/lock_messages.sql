-- Locks messages and says what they say; a clause that locks follows. Their content is not touched. {index}
-- and {which}: by number, or by id where the number was another's.
SELECT seq, id, due_at, integration_type, status, 0
FROM integration_outbox /*row*/ FORCE INDEX ({index}) WHERE {which}
