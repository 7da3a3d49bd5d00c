-- Sent rows again, in a table that somebody else made: the row is opened, and its delivery says that this is a
-- replay. $1 ids, $2 a fresh token, $3 action (for `record_action.sql`, which follows). Lock order: delivery,
-- message.
WITH sent AS (
    SELECT m.id, m.seq, m.integration_type, m.due_at,
           core_outbox.content_bytes(m.payload, m.headers) AS bytes
    FROM core_outbox.integration_outbox m
    WHERE m.id = ANY ($1) AND m.status = 'SENT'
      -- Marked SENT by hand during an attempt: that attempt decides.
      AND NOT EXISTS (
          SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id AND d.claim IS NOT NULL
          UNION ALL
          SELECT FROM core_outbox.in_flight f WHERE f.message_id = m.id
      )
),
made AS (
    INSERT INTO core_outbox.delivery AS d
        (message_id, seq, due_at, since, lane, bytes, state, integration, is_replay)
    SELECT id, seq, date_trunc('milliseconds', now()), now(), core_outbox.lane_of(integration_type), bytes, 'w',
           integration_type, true
    FROM sent
    ORDER BY id
    ON CONFLICT (message_id) DO UPDATE
    SET due_at = excluded.due_at, since = excluded.since, state = 'w', rescues = 0, attempts = 0, is_replay = true
    WHERE d.claim IS NULL
    RETURNING message_id
),
changed AS (
    UPDATE core_outbox.integration_outbox m
    SET status = 'PENDING', attempts = 0, due_at = now(), updated_at = now(), settled = $2
    WHERE m.id = ANY (ARRAY(SELECT message_id FROM made))
    RETURNING m.id
)
