-- ?1 ids.
DELETE FROM integration_outbox WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id
