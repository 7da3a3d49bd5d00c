-- Writes SENT into messages that were delivered some time ago. Waits for nobody: what somebody is changing
-- at this moment stays noted. What was changed by hand meanwhile yields, as to an attempt. $1 settlements at most,
-- $2 how many seconds ago at the least, $3 only those that name one of these messages, or null. Runs under
-- JOIN_BY_HASH of `transaction.rs`; the arrays beside the joins bound what is read.
WITH due AS MATERIALIZED (
    SELECT ctid AS place, token, at, ids FROM core_outbox.sent
    WHERE at <= now() - make_interval(secs => $2) AND ($3::/*id*/uuid[] IS NULL OR ids && $3)
    ORDER BY at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
named AS MATERIALIZED (SELECT place, token, at, unnest(ids) AS id FROM due),
there AS MATERIALIZED (
    SELECT id FROM core_outbox.integration_outbox WHERE id = ANY (ARRAY(SELECT id FROM named))
),
free AS MATERIALIZED (
    SELECT id FROM core_outbox.integration_outbox
    WHERE id = ANY (ARRAY(SELECT id FROM named))
    FOR NO KEY UPDATE SKIP LOCKED
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'SENT', sent_at = named.at, updated_at = now(), settled = named.token
    FROM named
    WHERE m.id = named.id AND m.id = ANY (ARRAY(SELECT id FROM free))
      -- Released, and recorded as sent by another: the first word stands.
      AND NOT (m.status = 'SENT' AND m.settled IS NOT NULL)
    RETURNING m.id
),
-- A note all of whose messages are locked stays where it is.
moved AS MATERIALIZED (
    SELECT DISTINCT place FROM named
    WHERE (named.id IN (SELECT id FROM free)) IS TRUE
       OR (named.id IN (SELECT id FROM there)) IS NOT TRUE
),
gone AS (DELETE FROM core_outbox.sent WHERE ctid = ANY (ARRAY(SELECT place FROM moved))),
kept AS (
    INSERT INTO core_outbox.sent (token, at, lowest, highest, ids)
    SELECT still.token, still.at, still.ids[1], still.ids[cardinality(still.ids)], still.ids
    FROM (
        SELECT named.token, named.at, array_agg(named.id ORDER BY named.id /*text: COLLATE "C" */) AS ids
        FROM named
        WHERE (named.id IN (SELECT id FROM there)) IS TRUE
          AND (named.id IN (SELECT id FROM free)) IS NOT TRUE
          AND (named.place IN (SELECT place FROM moved)) IS TRUE
        GROUP BY named.token, named.at
    ) AS still
)
SELECT (SELECT count(*) FROM marked)
