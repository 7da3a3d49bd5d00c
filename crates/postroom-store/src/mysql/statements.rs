//! The statements that are always the same, and the columns that others select.
//!
//! The indexes are named: with statistics that were taken while there was little to do, the
//! server would read, and lock, the whole backlog instead.

/// What `row::message` reads, in its order; `$payload` may leave a payload out.
macro_rules! message_columns {
    ($payload:literal) => {
        concat!(
            "m.seq, m.id, m.source_event_id, m.source_stream_id, m.integration_type, \
             m.event_type, ",
            $payload,
            ", m.headers, m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, \
             m.ordering_key, m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, \
             m.max_attempts, m.created_at"
        )
    };
}

/// What `row::taken` reads of `integration_outbox AS m`. `{limit}` is the payload limit.
pub(super) const TAKEN: &str =
    message_columns!("IF(OCTET_LENGTH(m.payload) <= {limit}, m.payload, NULL)");

/// What `row::dispatched` reads: the messages that jobs refer to and that are still to be delivered.
/// Ids follow. A message that was closed by hand while it was claimed counts as gone.
pub(super) const DISPATCHED: &str = concat!(
    "SELECT ",
    message_columns!("m.payload"),
    ", d.dispatch FROM integration_outbox AS m FORCE INDEX (outbox_id) \
     JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.seq = m.seq \
     WHERE m.status IN ('PENDING', 'FAILED') AND NOT d.dead AND m.id IN "
);

/// What `row::record` reads of `outbox_messages AS m`.
pub(super) const RECORD: &str = concat!(
    message_columns!("m.payload"),
    ", m.status, m.locked_at, m.locked_by, m.updated_at, m.sent_at, m.last_error"
);

/// Whether anything is due in one lane. Queue, lane.
pub(super) const IS_DUE: &str = "
    EXISTS (
        SELECT 1 FROM outbox_delivery FORCE INDEX (outbox_delivery_queue)
        WHERE queue = ? AND integration = ? AND due_at <= UTC_TIMESTAMP(6)
    )";

/// What is due in one lane; a clause that locks may follow. Queue, lane, rows.
pub(super) const DUE: &str = "
    SELECT seq, due_at, rescues, CAST(bytes AS SIGNED), dispatch
    FROM outbox_delivery FORCE INDEX (outbox_delivery_queue)
    WHERE queue = ? AND integration = ? AND due_at <= UTC_TIMESTAMP(6)
    ORDER BY due_at, seq LIMIT ? ";

/// Token, worker, claim time in microseconds, alone, dispatched, lease.
pub(super) const INSERT_CLAIM: &str = "
    INSERT INTO outbox_claim (token, worker, since, until, alone, dispatched, lease)
    VALUES (?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?, ?)";

/// Lease, worker, claim time in microseconds, twice.
pub(super) const KEEP: &str = "
    INSERT INTO outbox_claim (token, worker, since, until, alone, dispatched)
    VALUES (?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, FALSE, TRUE)
    ON DUPLICATE KEY UPDATE until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND";

/// The claims under a lease, and whether the own time of each is over. Lease.
pub(super) const LEASED: &str =
    "SELECT token, until < UTC_TIMESTAMP(6) FROM outbox_claim WHERE lease = ?";

/// What was taken under it goes by its own time then. Lease.
pub(super) const FORGET_LEASE: &str = "DELETE FROM outbox_claim WHERE token = ?";

/// A claim goes once nothing carries it. Token, twice.
pub(super) const FORGET_CLAIM: &str = "
    DELETE FROM outbox_claim
    WHERE token = ? AND NOT EXISTS (SELECT 1 FROM outbox_delivery WHERE claim = ?)";

/// Claims that have expired and that no lease keeps; an order and a limit follow.
pub(super) const EXPIRED: &str = "
    SELECT c.token FROM outbox_claim AS c FORCE INDEX (outbox_claim_until)
    LEFT JOIN outbox_claim AS kept FORCE INDEX (PRIMARY)
        ON kept.token = c.lease AND kept.until >= UTC_TIMESTAMP(6)
    WHERE c.until < UTC_TIMESTAMP(6) AND kept.token IS NULL";

/// What is waiting, by integration.
pub(super) const BACKLOG: &str = "
    SELECT integration,
           CAST(SUM(queue IN (0, 1) AND NOT failed) AS SIGNED),
           CAST(SUM(queue = 2) AS SIGNED),
           CAST(SUM(queue IN (0, 1) AND failed) AS SIGNED),
           CAST(SUM(queue = 3) AS SIGNED),
           GREATEST(0, COALESCE(
               TIMESTAMPDIFF(MICROSECOND, MIN(IF(queue IN (0, 1), due_at, NULL)),
                             UTC_TIMESTAMP(6)) DIV 1000,
               0))
    FROM outbox_delivery GROUP BY integration ORDER BY integration";

/// The integrations that have something waiting. A look-up per integration, however large the
/// backlog.
pub(super) const INTEGRATIONS: &str = "
    WITH RECURSIVE
    ready (integration) AS (
        SELECT MIN(integration) FROM outbox_delivery WHERE queue = 0
        UNION ALL
        SELECT (SELECT MIN(d.integration) FROM outbox_delivery AS d
                WHERE d.queue = 0 AND d.integration > ready.integration)
        FROM ready WHERE ready.integration IS NOT NULL
    ),
    rescued (integration) AS (
        SELECT MIN(integration) FROM outbox_delivery WHERE queue = 1
        UNION ALL
        SELECT (SELECT MIN(d.integration) FROM outbox_delivery AS d
                WHERE d.queue = 1 AND d.integration > rescued.integration)
        FROM rescued WHERE rescued.integration IS NOT NULL
    )
    SELECT integration FROM ready WHERE integration IS NOT NULL
    UNION
    SELECT integration FROM rescued WHERE integration IS NOT NULL
    ORDER BY integration";

/// Counts by status over the whole table.
pub(super) const STATUS_COUNTS: &str =
    "SELECT status, COUNT(*) FROM outbox_messages GROUP BY status ORDER BY status";

/// Id, worker.
pub(super) const CLAIM_OF: &str = "
    SELECT d.claim, d.seq
    FROM integration_outbox AS m
    JOIN outbox_delivery AS d ON d.seq = m.seq
    JOIN outbox_claim AS c ON c.token = d.claim
    WHERE m.id = ? AND c.worker = ?";

/// Id.
pub(super) const ATTEMPTS: &str = "
    SELECT a.at, a.took_ms, a.outcome, a.error, a.response
    FROM outbox_attempt AS a
    JOIN integration_outbox AS m ON m.seq = a.seq
    WHERE m.id = ? ORDER BY a.number";

/// Indexes on columns that change with every outcome.
pub(super) const COSTLY_INDEXES: &str = "
    SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'integration_outbox'
      AND COLUMN_NAME IN ('due_at', 'attempts', 'status', 'locked_at', 'locked_by', 'updated_at',
                          'sent_at', 'last_error', 'settled')
    ORDER BY INDEX_NAME";
