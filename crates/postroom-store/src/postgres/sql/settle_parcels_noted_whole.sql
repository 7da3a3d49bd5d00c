-- A whole batch that was delivered, of integrations that have SENT recorded in the background: it is noted
-- in one row, and no message is looked at. Follows `held_parcels.sql`. $1 token, $2 ids in order, $3 those
-- integrations. That these are all of the claim's is known as in `settle_parcels_sent.sql`.
--
-- Everything else is left to `settle_parcels_noted.sql`: parts of a batch, batches of other integrations
-- too, and messages that have a delivery, which outranks their parcel.
whole AS MATERIALIZED (
    SELECT FROM mine
    WHERE mine.messages = cardinality($2::/*id*/uuid[])
      AND mine.lanes <@ ARRAY(SELECT core_outbox.lane_of(unnest($3::text[])))
      AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = ANY ($2::/*id*/uuid[]))
      AND NOT EXISTS (SELECT FROM core_outbox.sent s WHERE s.token = $1)
),
note AS (
    INSERT INTO core_outbox.sent (token, at, lowest, highest, ids)
    SELECT $1, now(), ($2::/*id*/uuid[])[1], ($2::/*id*/uuid[])[cardinality($2::/*id*/uuid[])], $2 FROM whole
),
