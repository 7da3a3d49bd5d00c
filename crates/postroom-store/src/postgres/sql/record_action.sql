-- Adds what an operation has `changed` to its record. Ends operations. $3 action.
, recorded AS (
    UPDATE core_outbox.action SET messages = messages + (SELECT count(*) FROM changed)
    WHERE id = $3
)
