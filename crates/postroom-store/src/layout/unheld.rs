//! Parts of a message that a row may have no column for: enqueueing them would lose them.

use super::Assignments;

/// A part of a message.
pub(crate) struct Part {
    /// What `insert` calls it, behind a dollar sign.
    pub(crate) name: &'static str,
    /// Whether a message gives it, by the parameters of the function that enqueues on PostgreSQL.
    pub(crate) on_postgres: &'static str,
    /// The same by the row that is inserted into the view on SQLite.
    pub(crate) on_sqlite: &'static str,
    /// The same by the parameters of the procedure that enqueues on MariaDB and MySQL.
    pub(crate) on_mysql: &'static str,
}

const fn part(
    name: &'static str,
    on_postgres: &'static str,
    on_sqlite: &'static str,
    on_mysql: &'static str,
) -> Part {
    Part { name, on_postgres, on_sqlite, on_mysql }
}

/// What every message has by default is not given.
///
/// The event id is none of them: the library gives every message one. Nor are the event type and the payload, which
/// every message must have. A `traceparent` may come from the library too.
const PARTS: [Part; 12] = [
    part(
        "headers",
        "CASE WHEN jsonb_typeof(enqueue.headers) = 'object' THEN enqueue.headers - 'traceparent' <> '{}' \
         ELSE enqueue.headers IS NOT NULL END",
        "json_remove(NEW.headers, '$.traceparent') <> '{}'",
        "JSON_LENGTH(JSON_REMOVE(p_headers, '$.traceparent')) > 0",
    ),
    part(
        "tenant_id",
        "enqueue.tenant IS NOT NULL",
        "NEW.tenant_id IS NOT NULL",
        "p_tenant IS NOT NULL",
    ),
    part(
        "user_id",
        "enqueue.user_id IS NOT NULL",
        "NEW.user_id IS NOT NULL",
        "p_user_id IS NOT NULL",
    ),
    part(
        "correlation_id",
        "enqueue.correlation IS NOT NULL",
        "NEW.correlation_id IS NOT NULL",
        "p_correlation IS NOT NULL",
    ),
    part(
        "causation_id",
        "enqueue.causation IS NOT NULL",
        "NEW.causation_id IS NOT NULL",
        "p_causation IS NOT NULL",
    ),
    part("source", "enqueue.source IS NOT NULL", "NEW.source IS NOT NULL", "p_source IS NOT NULL"),
    part(
        "ordering_key",
        "enqueue.ordering_key IS NOT NULL",
        "NEW.ordering_key IS NOT NULL",
        "p_ordering_key IS NOT NULL",
    ),
    part(
        "stream",
        "enqueue.stream <> event",
        "NEW.source_stream_id <> NEW.source_event_id",
        "p_stream <> event",
    ),
    part(
        "schema_version",
        "enqueue.schema_version <> 1",
        "NEW.schema_version <> 1",
        "p_schema_version <> 1",
    ),
    part(
        "max_attempts",
        "enqueue.max_attempts <> 10",
        "NEW.max_attempts <> 10",
        "p_max_attempts <> 10",
    ),
    part(
        "occurred_at",
        "enqueue.occurred_at IS NOT NULL",
        "NEW.occurred_at IS NOT NULL",
        "p_occurred_at IS NOT NULL",
    ),
    part(
        "due",
        "enqueue.due_at > clock_timestamp()",
        "julianday(NEW.due_at) > julianday('now', '+1 second')",
        "p_due_at > UTC_TIMESTAMP(6) + INTERVAL 1 SECOND",
    ),
];

/// The parts that `insert` writes nowhere.
pub(crate) fn unheld(insert: &Assignments) -> impl Iterator<Item = Part> {
    PARTS.into_iter().filter(|part| {
        let name = format!("${}", part.name);
        !insert.values().any(|value| value.contains(&name))
    })
}
