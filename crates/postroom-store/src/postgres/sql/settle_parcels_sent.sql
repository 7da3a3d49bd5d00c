-- Messages of parcels that were delivered. Follows `held_parcels.sql`. $1 token, $2 ids. A delivery outranks
-- the parcel: what was taken from this claim meanwhile is not its to settle, nor what somebody else has
-- completed since. When the whole batch is done, parcels and claim go with it.
--
-- Whoever says as many as the claim holds says all of them: only its holder knows the token, and was told
-- these ids with it. Whose they are is looked up for parts of a batch.
changed AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
    WHERE m.id = ANY ($2)
      -- IS TRUE keeps this a look-up in a hash: a join would compare every message with every other.
      AND ((SELECT messages = cardinality($2::/*id*/uuid[]) FROM mine)
           OR (m.id IN (SELECT unnest(refs) FROM held)) IS TRUE)
      -- An array: one look-up by key per message under every plan.
      AND m.id <> ALL (ARRAY(SELECT d.message_id FROM core_outbox.delivery d
                             WHERE d.message_id = ANY ($2)))
      -- Said again, it changes nothing.
      AND m.settled IS DISTINCT FROM $1
      AND NOT (m.status = 'SENT' AND m.settled IS NOT NULL)
    RETURNING m.id
),
whole AS MATERIALIZED (SELECT FROM mine WHERE messages = (SELECT count(*) FROM changed)),
