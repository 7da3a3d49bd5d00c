//! The statements that are always the same, and the columns that others select.
//!
//! The indexes are named: with statistics that were taken while there was little to do, the
//! server would read, and lock, the whole backlog instead.

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
             m.ordering_key, m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, \
             m.max_attempts, m.created_at"
        )
    };
}

/// What `row::taken` reads of `integration_outbox AS m`. `{limit}` is the payload limit,
/// `{headers_limit}` that of headers.
pub(super) const TAKEN: &str = concat!(
    message_columns!(
        "IF(OCTET_LENGTH(m.payload) <= {limit}, m.payload, NULL)",
        "IF(OCTET_LENGTH(m.headers) <= {headers_limit}, m.headers, NULL)"
    ),
    ", m.headers IS NOT NULL"
);

/// What `row::dispatched` reads: the messages that jobs refer to and that are still to be delivered,
/// and those that were marked SENT or DEAD while they were claimed. Ids follow.
pub(super) const DISPATCHED: &str = concat!(
    "SELECT ",
    message_columns!(),
    ", d.dispatch, m.status, m.last_error \
     FROM integration_outbox AS m FORCE INDEX (outbox_id) \
     JOIN outbox_delivery AS d FORCE INDEX (PRIMARY) ON d.seq = m.seq \
     WHERE m.status IN ('PENDING', 'FAILED', 'SENT', 'DEAD') AND NOT d.dead AND m.id IN "
);

/// What `row::record` reads of `outbox_messages AS m`.
pub(super) const RECORD: &str = concat!(
    message_columns!(),
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

/// Writes nothing unless the relay lives. Token, worker, alone, dispatched, relay.
pub(super) const INSERT_CLAIM: &str = "
    INSERT INTO outbox_claim (token, worker, since, alone, dispatched, relay)
    SELECT ?, ?, UTC_TIMESTAMP(6), ?, ?, r.id
    FROM outbox_relay AS r FORCE INDEX (PRIMARY) WHERE r.id = ? AND r.until >= UTC_TIMESTAMP(6)";

/// Claims that still name it have expired then. Relay.
pub(super) const LEAVE: &str = "DELETE FROM outbox_relay WHERE id = ?";

/// Relays that live, expired lately, or still hold claims. Lately, in microseconds.
pub(super) const RELAYS: &str = "
    SELECT r.id, r.name, r.version, CAST(r.lanes AS SIGNED), r.started_at, r.until,
           COUNT(c.token)
    FROM outbox_relay AS r LEFT JOIN outbox_claim AS c ON c.relay = r.id
    GROUP BY r.id, r.name, r.version, r.lanes, r.started_at, r.until
    HAVING r.until >= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR COUNT(c.token) > 0
    ORDER BY r.name, r.started_at, r.id";

/// A claim goes once nothing carries it. Token, twice.
pub(super) const FORGET_CLAIM: &str = "
    DELETE FROM outbox_claim
    WHERE token = ? AND NOT EXISTS (SELECT 1 FROM outbox_delivery WHERE claim = ?)";

/// Claims of others without a living relay; a limit follows. The relay that asks. They are read by an index, in its order, and there
/// are as many as batches in flight.
pub(super) const EXPIRED: &str = "
    SELECT c.token, c.relay FROM outbox_claim AS c FORCE INDEX (outbox_claim_relay)
    LEFT JOIN outbox_relay AS alive FORCE INDEX (PRIMARY)
        ON alive.id = c.relay AND alive.until >= UTC_TIMESTAMP(6)
    WHERE alive.id IS NULL AND c.relay <> ? ORDER BY c.relay, c.token";

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
    JOIN integration_outbox AS m ON m.seq = a.seq AND m.id = a.message_id
    WHERE m.id = ? ORDER BY a.number";

/// Indexes on columns that change with every outcome.
pub(super) const COSTLY_INDEXES: &str = "
    SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'integration_outbox'
      AND COLUMN_NAME IN ('due_at', 'attempts', 'status', 'locked_at', 'locked_by', 'updated_at',
                          'sent_at', 'last_error', 'settled')
    ORDER BY INDEX_NAME";
