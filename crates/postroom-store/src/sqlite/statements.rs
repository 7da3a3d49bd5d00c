//! Every statement, in one place. Lists of numbers are JSON arrays.
//!
//! The indexes are named: with statistics that someone took while there was little to do,
//! SQLite would read the whole backlog instead.

/// A column that holds a time as text, in milliseconds since 1970. `julianday` reads every
/// format that a producer may write, zones included.
macro_rules! ms {
    ($column:literal) => {
        concat!("CAST(round((julianday(", $column, ") - 2440587.5) * 86400000.0) AS INTEGER)")
    };
}

/// What `row::message` reads, in its order; `$payload` and `$headers` may leave content out.
macro_rules! message_columns {
    () => {
        message_columns!("m.payload", "m.headers")
    };
    ($payload:literal, $headers:literal) => {
        concat!(
            "m.seq, m.id, m.source_event_id, m.source_stream_id, m.integration_type, \
             m.event_type, ",
            $payload,
            ", ",
            $headers,
            ", m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, \
             m.ordering_key, m.schema_version, m.copy, ",
            ms!("m.occurred_at"),
            ", ",
            ms!("m.due_at"),
            ", m.attempts, m.max_attempts, ",
            ms!("m.created_at")
        )
    };
}

/// What `row::record` reads, in its order.
macro_rules! record_columns {
    () => {
        record_columns!("m.payload", "m.headers")
    };
    ($payload:literal, $headers:literal) => {
        concat!(
            message_columns!($payload, $headers),
            ", m.status, ",
            ms!("m.locked_at"),
            ", m.locked_by, ",
            ms!("m.updated_at"),
            ", ",
            ms!("m.sent_at"),
            ", m.last_error"
        )
    };
}

/// The same without content.
macro_rules! state_columns {
    () => {
        record_columns!("NULL", "NULL")
    };
}

/// Whether anything is due in some lanes. `?1` lanes, `?2` now.
pub(super) const IS_DUE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM json_each(?1) AS lane
        CROSS JOIN outbox_delivery AS d INDEXED BY outbox_delivery_ready
            ON d.integration = lane.value
        WHERE d.claim IS NULL AND NOT d.dead AND d.rescues = 0 AND d.due_at <= ?2
    )";

/// Whether anything that was rescued is due in some lanes. `?1` lanes, `?2` now.
pub(super) const IS_RESCUED_DUE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM json_each(?1) AS lane
        CROSS JOIN outbox_delivery AS d INDEXED BY outbox_delivery_rescued
            ON d.integration = lane.value
        WHERE d.claim IS NULL AND NOT d.dead AND d.rescues > 0 AND d.due_at <= ?2
    )";

/// What is due in one lane, with what its content weighs. `?1` lane, `?2` now, `?3` rows.
pub(super) const DUE: &str = "
    SELECT d.seq, d.due_at, d.rescues, m.status,
           coalesce(octet_length(m.payload), 0), coalesce(octet_length(m.headers), 0), d.dispatch
    FROM outbox_delivery AS d INDEXED BY outbox_delivery_ready
    LEFT JOIN integration_outbox AS m ON m.seq = d.seq
    WHERE d.integration = ?1
      AND d.claim IS NULL AND NOT d.dead AND d.rescues = 0 AND d.due_at <= ?2
    ORDER BY d.due_at, d.seq LIMIT ?3";

/// The same for what was rescued.
pub(super) const RESCUED_DUE: &str = "
    SELECT d.seq, d.due_at, d.rescues, m.status,
           coalesce(octet_length(m.payload), 0), coalesce(octet_length(m.headers), 0), d.dispatch
    FROM outbox_delivery AS d INDEXED BY outbox_delivery_rescued
    LEFT JOIN integration_outbox AS m ON m.seq = d.seq
    WHERE d.integration = ?1
      AND d.claim IS NULL AND NOT d.dead AND d.rescues > 0 AND d.due_at <= ?2
    ORDER BY d.due_at, d.seq LIMIT ?3";

/// Removes deliveries whose message is gone, or is neither open nor dead. `?1` numbers.
pub(super) const FORGET_CLOSED: &str = "
    DELETE FROM outbox_delivery
    WHERE seq IN (SELECT value FROM json_each(?1)) AND claim IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM integration_outbox AS m
          WHERE m.seq = outbox_delivery.seq AND m.status IN ('PENDING', 'FAILED', 'DEAD')
      )";

/// Follows what was changed by hand while a delivery was claimed, when the trigger left it alone,
/// or while there were no triggers. `?1` numbers.
pub(super) const FOLLOW: &str = concat!(
    "UPDATE outbox_delivery
     SET due_at = ",
    ms!("m.due_at"),
    ", integration = m.integration_type, failed = m.status = 'FAILED', dead = m.status = 'DEAD'
     FROM integration_outbox AS m
     WHERE outbox_delivery.seq IN (SELECT value FROM json_each(?1))
       AND outbox_delivery.claim IS NULL AND m.seq = outbox_delivery.seq"
);

/// Writes nothing unless the relay lives. `?1` token, `?2` worker, `?3` now, `?4` alone,
/// `?5` dispatched, `?6` relay.
pub(super) const INSERT_CLAIM: &str = "
    INSERT INTO outbox_claim (token, worker, since, alone, dispatched, relay)
    SELECT ?1, ?2, ?3, ?4, ?5, id FROM outbox_relay WHERE id = ?6 AND until >= ?3";

/// `?1` token, `?2` numbers.
pub(super) const CLAIM: &str =
    "UPDATE outbox_delivery SET claim = ?1 WHERE seq IN (SELECT value FROM json_each(?2))";

/// Messages in the order of the numbers. `?1` numbers, `?2` payload limit, `?3` headers limit.
pub(super) const READ: &str = concat!(
    "SELECT ",
    message_columns!(
        "CASE WHEN octet_length(m.payload) <= ?2 THEN m.payload END",
        "CASE WHEN octet_length(m.headers) <= ?3 THEN m.headers END"
    ),
    ", m.headers IS NOT NULL FROM json_each(?1) AS taken CROSS JOIN integration_outbox AS m ON m.seq = taken.value"
);

/// What jobs refer to: the messages that are still to be delivered, and those that were marked SENT
/// or DEAD while they were claimed. `?1` ids.
pub(super) const DISPATCHED: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", d.dispatch, m.status, m.last_error FROM json_each(?1) AS job
     CROSS JOIN integration_outbox AS m ON m.id = job.value COLLATE NOCASE
     CROSS JOIN outbox_delivery AS d ON d.seq = m.seq
     WHERE m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD') AND NOT d.dead"
);

/// Deliveries of a claim that failed do so no more. `?1` token, `?2` numbers.
pub(super) const REOPEN: &str = "
    UPDATE outbox_delivery SET failed = 0
    WHERE seq IN (SELECT value FROM json_each(?2)) AND claim = ?1 AND failed
    RETURNING seq";

/// Nor do their messages. `?1` a fresh token, `?2` numbers, `?3` now.
pub(super) const MARK_REOPENED: &str = "
    UPDATE integration_outbox SET status = 'PENDING', updated_at = ?3, settled = ?1
    WHERE seq IN (SELECT value FROM json_each(?2)) AND status = 'FAILED'";

/// `?1` relay, `?2` name, `?3` now, `?4` until, `?5` version, `?6` lanes.
pub(super) const BEAT: &str = "
    INSERT INTO outbox_relay (id, name, started_at, until, version, lanes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (id) DO UPDATE
    SET name = excluded.name, until = excluded.until, version = excluded.version,
        lanes = excluded.lanes";

/// The claims that name a relay, and whether each is older than a claim time. `?1` relay, `?2` a
/// claim time ago.
pub(super) const CLAIMS_OF_RELAY: &str = "
    SELECT token, since < ?2 FROM outbox_claim INDEXED BY outbox_claim_relay WHERE relay = ?1";

/// Gives up claims that their relay does not know: losing them counts for nothing. `?1` tokens,
/// `?2` nobody.
pub(super) const GIVE_UP: &str = "
    UPDATE outbox_claim SET relay = ?2, alone = 0, dispatched = 1
    WHERE token IN (SELECT value FROM json_each(?1))";

/// Rows that expired long ago, or served a single call, and hold no claim. `?1` now, `?2` long ago.
pub(super) const FORGET_RELAYS: &str = "
    DELETE FROM outbox_relay
    WHERE until < iif(lanes > 0, ?2, ?1)
      AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.relay = outbox_relay.id)";

/// Claims that still name it have expired then. `?1` relay.
pub(super) const LEAVE: &str = "DELETE FROM outbox_relay WHERE id = ?1";

/// Relays that live, expired lately, or still hold claims. `?1` long ago.
pub(super) const RELAYS: &str = "
    SELECT r.id, r.name, r.version, r.lanes, r.started_at, r.until, count(c.token)
    FROM outbox_relay AS r LEFT JOIN outbox_claim AS c ON c.relay = r.id
    GROUP BY r.id
    HAVING r.until >= ?1 OR count(c.token) > 0
    ORDER BY r.name, r.started_at, r.id";

/// The statements that change deliveries by a fence, which is `?1`: what they do not return was lost
/// to another relay, or is another dispatch's.
pub(super) struct Fenced {
    /// `?2` numbers.
    pub(super) end_sent: &'static str,
    /// `?2` numbers.
    pub(super) release: &'static str,
    /// Only where the message says what the delivery says: nobody has changed it. `?2` number,
    /// `?3` due.
    pub(super) put_off: &'static str,
    /// `?2` number, `?3` due.
    pub(super) free_failed: &'static str,
    /// `?2` number.
    pub(super) free_dead: &'static str,
}

macro_rules! fenced {
    ($fence:literal, $ends:literal) => {
        Fenced {
            end_sent: concat!(
                "DELETE FROM outbox_delivery
                 WHERE seq IN (SELECT value FROM json_each(?2)) AND ",
                $fence,
                " RETURNING seq"
            ),
            release: concat!(
                "UPDATE outbox_delivery SET claim = NULL",
                $ends,
                " WHERE seq IN (SELECT value FROM json_each(?2)) AND ",
                $fence,
                " RETURNING seq"
            ),
            put_off: concat!(
                "UPDATE outbox_delivery SET claim = NULL, due_at = ?3",
                $ends,
                " WHERE seq = ?2 AND ",
                $fence,
                " AND EXISTS (
                      SELECT 1 FROM integration_outbox AS m
                      WHERE m.seq = outbox_delivery.seq AND NOT outbox_delivery.dead
                        AND m.status = iif(outbox_delivery.failed, 'FAILED', 'PENDING')
                        AND m.integration_type = outbox_delivery.integration
                        AND ",
                ms!("m.due_at"),
                " = outbox_delivery.due_at
                  )"
            ),
            free_failed: concat!(
                "UPDATE outbox_delivery SET claim = NULL, rescues = 0, failed = 1, due_at = ?3",
                $ends,
                " WHERE seq = ?2 AND ",
                $fence
            ),
            free_dead: concat!(
                "UPDATE outbox_delivery SET claim = NULL, rescues = 0, failed = 0, dead = 1",
                $ends,
                " WHERE seq = ?2 AND ",
                $fence
            ),
        }
    };
}

/// `?1` the claim's token.
pub(super) const BY_CLAIM: Fenced = fenced!("claim = ?1", "");

/// `?1` how many dispatches were over when this one began; it is over now.
pub(super) const BY_DISPATCH: Fenced =
    fenced!("dispatch = ?1 AND NOT dead", ", dispatch = dispatch + 1");

/// `?1` token, `?2` numbers, `?3` now.
pub(super) const MARK_SENT: &str = "
    UPDATE integration_outbox SET status = 'SENT', sent_at = ?3, updated_at = ?3, settled = ?1
    WHERE seq IN (SELECT value FROM json_each(?2))";

/// `?1` numbers.
pub(super) const DELETE_MESSAGES: &str =
    "DELETE FROM integration_outbox WHERE seq IN (SELECT value FROM json_each(?1))";

/// `?1` token, `?2` number, `?3` due, `?4` error, `?5` now, `?6` how many attempts had failed before
/// this one, or null: an external worker may have counted it in the row itself.
pub(super) const MARK_FAILED: &str = "
    UPDATE integration_outbox
    SET status = 'FAILED',
        attempts = min(coalesce(max(attempts, ?6 + 1), attempts + 1), 2147483647), due_at = ?3,
        last_error = ?4, updated_at = ?5, settled = ?1
    WHERE seq = ?2";

/// `?1` a fresh token, `?2` number, `?3` due, `?4` now.
pub(super) const MARK_PUT_OFF: &str =
    "UPDATE integration_outbox SET due_at = ?3, updated_at = ?4, settled = ?1 WHERE seq = ?2";

/// `?1` token, `?2` number, `?3` attempts to add, `?4` error, `?5` now, `?6` as for `MARK_FAILED`.
pub(super) const MARK_DEAD: &str = "
    UPDATE integration_outbox
    SET status = 'DEAD',
        attempts = min(coalesce(max(attempts, ?6 + ?3), attempts + ?3), 2147483647),
        last_error = ?4, updated_at = ?5, settled = ?1
    WHERE seq = ?2";

/// A claim goes once nothing carries it. `?1` token.
pub(super) const FORGET_CLAIM: &str = "
    DELETE FROM outbox_claim
    WHERE token = ?1 AND NOT EXISTS (SELECT 1 FROM outbox_delivery WHERE claim = ?1)";

/// Which of these numbers belong to other messages by now: numbers come again when someone empties
/// the table. `?1` number and id of each.
pub(super) const OTHERS: &str = "
    SELECT m.seq FROM json_each(?1) AS meant
    CROSS JOIN integration_outbox AS m ON m.seq = json_extract(meant.value, '$[0]')
    WHERE m.id <> json_extract(meant.value, '$[1]')";

/// Which messages carry the word of this token already. `?1` token, `?2` numbers.
pub(super) const ALREADY_SETTLED: &str = "
    SELECT seq FROM integration_outbox
    WHERE seq IN (SELECT value FROM json_each(?2)) AND settled = ?1";

/// Claims whose relay left or has expired, and until when it lived. `?1` now, `?2` claims, `?3` the
/// relay that asks, whose own are left out.
pub(super) const EXPIRED: &str = "
    SELECT c.token, c.worker, c.alone, coalesce(r.until, ?1) - c.since, c.dispatched
    FROM outbox_claim AS c LEFT JOIN outbox_relay AS r ON r.id = c.relay
    WHERE (r.until IS NULL OR r.until < ?1)
      AND c.relay <> ?3
    LIMIT ?2";

/// What is held under a claim. `?1` token.
pub(super) const HELD: &str =
    "SELECT seq FROM outbox_delivery INDEXED BY outbox_delivery_claimed WHERE claim = ?1";

/// `?1` token, `?2` rescues to add.
pub(super) const FREE_RESCUED: &str = "
    UPDATE outbox_delivery INDEXED BY outbox_delivery_claimed
    SET claim = NULL, rescues = rescues + ?2
    WHERE claim = ?1
    RETURNING seq";

/// One that was closed by hand meanwhile stays closed. `?1` a fresh token, `?2` numbers, `?3` error,
/// `?4` now.
pub(super) const COUNT_LOST: &str = "
    UPDATE integration_outbox
    SET status = 'FAILED', attempts = min(attempts + 1, 2147483647),
        last_error = ?3, updated_at = ?4, settled = ?1
    WHERE seq IN (SELECT value FROM json_each(?2)) AND status IN ('PENDING', 'FAILED')
    RETURNING seq";

/// The index goes by text, which is close; the comparison of times is exact. `?1` before,
/// `?2` rows.
pub(super) const PRUNE: &str = "
    DELETE FROM integration_outbox WHERE seq IN (
        SELECT seq FROM integration_outbox INDEXED BY outbox_sent
        WHERE status = 'SENT' AND coalesce(sent_at, created_at) < ?1
          AND julianday(coalesce(sent_at, created_at)) < julianday(?1)
        ORDER BY coalesce(sent_at, created_at) LIMIT ?2
    ) RETURNING seq";

/// Dead deliveries, from a number on. `?1` after, `?2` rows.
pub(super) const DEAD: &str = "
    SELECT seq FROM outbox_delivery INDEXED BY outbox_delivery_dead
    WHERE dead AND claim IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2";

/// Those whose message was deleted by hand. `?1` numbers.
pub(super) const PRUNE_ORPHANS: &str = "
    DELETE FROM outbox_delivery
    WHERE seq IN (SELECT value FROM json_each(?1))
      AND NOT EXISTS (SELECT 1 FROM integration_outbox AS m WHERE m.seq = outbox_delivery.seq)";

/// `?1` now.
pub(super) const BACKLOG: &str = "
    SELECT integration,
           count(*) FILTER (WHERE claim IS NULL AND NOT dead AND NOT failed),
           count(*) FILTER (WHERE claim IS NOT NULL),
           count(*) FILTER (WHERE claim IS NULL AND NOT dead AND failed),
           count(*) FILTER (WHERE claim IS NULL AND dead),
           max(0, coalesce(?1 - min(due_at) FILTER (WHERE claim IS NULL AND NOT dead), 0))
    FROM outbox_delivery GROUP BY integration ORDER BY integration";

/// Open messages without a delivery, from a number on. `?1` after, `?2` rows.
pub(super) const UNFED: &str = "
    SELECT m.seq FROM integration_outbox AS m
    WHERE m.seq > ?1 AND m.status IN ('PENDING', 'FAILED', 'DEAD')
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.seq = m.seq)
    ORDER BY m.seq LIMIT ?2";

/// Makes their deliveries. How many dispatches there were is not known any more: they count on as in
/// `0005_reopened.sql`. `?1` numbers.
pub(super) const FEED: &str = concat!(
    "INSERT INTO outbox_delivery (seq, integration, due_at, failed, dead, dispatch)
     SELECT m.seq, m.integration_type, ",
    ms!("m.due_at"),
    ", m.status = 'FAILED', m.status = 'DEAD', CAST(strftime('%s', 'now') AS INTEGER) - 1577836800
     FROM integration_outbox AS m
     WHERE m.seq IN (SELECT value FROM json_each(?1))
       AND m.status IN ('PENDING', 'FAILED', 'DEAD')
     ON CONFLICT DO NOTHING"
);

/// Deliveries without an open message, from a number on. `?1` after, `?2` rows.
pub(super) const CLOSED: &str = "
    SELECT d.seq FROM outbox_delivery AS d
    WHERE d.seq > ?1 AND d.claim IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM integration_outbox AS m
          WHERE m.seq = d.seq AND m.status IN ('PENDING', 'FAILED', 'DEAD')
      )
    ORDER BY d.seq LIMIT ?2";

/// Deliveries under a claim that does not exist, from a number on. `?1` after, `?2` rows.
pub(super) const STRAY: &str = "
    SELECT d.seq FROM outbox_delivery AS d
    WHERE d.seq > ?1 AND d.claim IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = d.claim)
    ORDER BY d.seq LIMIT ?2";

/// Frees them, as the messages say by now. `?1` numbers.
pub(super) const FREE_STRAY: &str = concat!(
    "UPDATE outbox_delivery
     SET claim = NULL,
         (due_at, integration, failed, dead) = (
             SELECT coalesce(max(",
    ms!("m.due_at"),
    "), outbox_delivery.due_at),
                    coalesce(max(m.integration_type), outbox_delivery.integration),
                    coalesce(max(m.status = 'FAILED'), outbox_delivery.failed),
                    coalesce(max(m.status = 'DEAD'), outbox_delivery.dead)
             FROM integration_outbox AS m
             WHERE m.seq = outbox_delivery.seq
         )
     WHERE seq IN (SELECT value FROM json_each(?1)) AND claim IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = outbox_delivery.claim)"
);

/// Deliveries that nobody holds and that say something else than their open message; what ends the
/// statement follows.
macro_rules! unlike {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM outbox_delivery AS d
             CROSS JOIN integration_outbox AS m ON m.seq = d.seq
             WHERE d.claim IS NULL AND m.status IN ('PENDING', 'FAILED', 'DEAD')
               AND (d.due_at <> ",
            ms!("m.due_at"),
            " OR d.integration <> m.integration_type
                OR d.failed <> (m.status = 'FAILED') OR d.dead <> (m.status = 'DEAD'))"
        )
    };
}

/// Those, from a number on. `?1` after, `?2` rows.
pub(super) const UNLIKE: &str =
    concat!(unlike!("d.seq"), " AND d.seq > ?1 ORDER BY d.seq LIMIT ?2");

/// What reconciliation would mend: open messages without a delivery, deliveries without an open
/// message, deliveries under a claim that does not exist, deliveries that say something else.
pub(super) const DISAGREEMENTS: &str = concat!(
    "SELECT
        (SELECT count(*) FROM integration_outbox AS m
         WHERE m.status IN ('PENDING', 'FAILED', 'DEAD')
           AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.seq = m.seq)),
        (SELECT count(*) FROM outbox_delivery AS d
         WHERE d.claim IS NULL
           AND NOT EXISTS (
               SELECT 1 FROM integration_outbox AS m
               WHERE m.seq = d.seq AND m.status IN ('PENDING', 'FAILED', 'DEAD')
           )),
        (SELECT count(*) FROM outbox_delivery AS d
         WHERE d.claim IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.token = d.claim)),
        (",
    unlike!("count(*)"),
    ")"
);

/// `?1` id.
pub(super) const FIND: &str =
    concat!("SELECT ", record_columns!(), " FROM outbox_messages AS m WHERE m.id = ?1");

/// Counts by status over the whole table.
pub(super) const STATUS_COUNTS: &str =
    "SELECT status, count(*) FROM outbox_messages GROUP BY status ORDER BY status";

/// The integrations that have something waiting. A loose index scan over both queues: a look-up
/// per integration, however large the backlog.
pub(super) const INTEGRATIONS: &str = "
    WITH RECURSIVE
    ready (integration) AS (
        SELECT min(integration) FROM outbox_delivery
        WHERE claim IS NULL AND NOT dead AND rescues = 0
        UNION ALL
        SELECT (SELECT min(d.integration) FROM outbox_delivery AS d
                WHERE d.claim IS NULL AND NOT d.dead AND d.rescues = 0
                  AND d.integration > ready.integration)
        FROM ready WHERE ready.integration IS NOT NULL
    ),
    rescued (integration) AS (
        SELECT min(integration) FROM outbox_delivery
        WHERE claim IS NULL AND NOT dead AND rescues > 0
        UNION ALL
        SELECT (SELECT min(d.integration) FROM outbox_delivery AS d
                WHERE d.claim IS NULL AND NOT d.dead AND d.rescues > 0
                  AND d.integration > rescued.integration)
        FROM rescued WHERE rescued.integration IS NOT NULL
    )
    SELECT integration FROM ready WHERE integration IS NOT NULL
    UNION
    SELECT integration FROM rescued WHERE integration IS NOT NULL
    ORDER BY integration";

/// `?1` worker, `?2` id.
pub(super) const CLAIM_OF: &str = "
    SELECT d.claim, d.seq
    FROM integration_outbox AS m
    JOIN outbox_delivery AS d ON d.seq = m.seq
    JOIN outbox_claim AS c ON c.token = d.claim
    WHERE m.id = ?2 AND c.worker = ?1";
