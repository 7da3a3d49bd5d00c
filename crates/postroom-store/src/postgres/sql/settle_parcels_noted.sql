-- The same where some integrations have SENT recorded in the background: of their messages it is noted in
-- one row, and nothing else is touched. Follows `held_parcels.sql`. $1 token, $2 ids, $3 those integrations.
-- Whole batches are noted by `settle_parcels_noted_whole.sql`.
later AS MATERIALIZED (SELECT unnest(refs) AS id FROM held WHERE integration = ANY ($3)),
noted AS MATERIALIZED (
    SELECT done.id FROM unnest($2::/*id*/uuid[]) AS done (id)
    WHERE (done.id IN (SELECT id FROM later)) IS TRUE
      AND done.id <> ALL (ARRAY(SELECT d.message_id FROM core_outbox.delivery d
                                WHERE d.message_id = ANY ($2)))
      -- Said again, it changes nothing.
      AND (done.id IN (SELECT unnest(ids) FROM core_outbox.sent WHERE token = $1)) IS NOT TRUE
),
note AS (
    INSERT INTO core_outbox.sent (token, at, lowest, highest, ids)
    SELECT $1, now(), done.ids[1], done.ids[cardinality(done.ids)], done.ids
    FROM (SELECT array_agg(id ORDER BY id /*text: COLLATE "C" */) AS ids FROM noted) AS done
    WHERE done.ids IS NOT NULL
),
marked AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
    WHERE m.id = ANY (ARRAY(
              SELECT done.id FROM unnest($2::/*id*/uuid[]) AS done (id)
              WHERE (done.id IN (SELECT unnest(refs) FROM held)) IS TRUE
                AND (done.id IN (SELECT id FROM later)) IS NOT TRUE
          ))
      AND m.id <> ALL (ARRAY(SELECT d.message_id FROM core_outbox.delivery d
                             WHERE d.message_id = ANY ($2)))
      -- As in `settle_parcels_sent.sql`.
      AND m.settled IS DISTINCT FROM $1
      AND NOT (m.status = 'SENT' AND m.settled IS NOT NULL)
    RETURNING m.id
),
changed AS MATERIALIZED (
    SELECT id FROM marked
    UNION ALL
    SELECT id FROM noted
),
whole AS MATERIALIZED (SELECT FROM mine WHERE messages = (SELECT count(*) FROM changed)),
