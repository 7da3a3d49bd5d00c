-- What messages say by now, by their ids. {ids}.
SELECT seq, id, due_at, integration_type, status,
       CAST(OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0) AS SIGNED)
FROM integration_outbox /*row*/ FORCE INDEX (outbox_id) WHERE id IN ({ids})
