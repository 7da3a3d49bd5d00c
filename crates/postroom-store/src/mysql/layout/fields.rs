//! The columns of Postroom's own table, out of a row of another one.

use super::{Foreign, for_row};
use crate::layout::{Dialect, backticked, besides, columns, integration};
use postroom_core::REPLAY_HEADER;

/// What the ledger's own table holds of a row besides its key.
pub(super) const STATE: [&str; 10] = [
    "integration_type",
    "status",
    "due_at",
    "attempts",
    "max_attempts",
    "created_at",
    "updated_at",
    "sent_at",
    "last_error",
    "bytes",
];

/// What is read from the row itself.
pub(super) const CONTENT: [&str; 13] = [
    "source_stream_id",
    "source_event_id",
    "event_type",
    "payload",
    "headers",
    "tenant_id",
    "user_id",
    "correlation_id",
    "ordering_key",
    "causation_id",
    "source",
    "schema_version",
    "occurred_at",
];

impl Foreign {
    /// What the row itself says: an expression over the row `m`.
    pub(super) fn said(&self, column: &str) -> String {
        let content = &self.layout.message;
        let state = &self.layout.state;
        match column {
            "id" => self.key.id(),
            "name" => self.key.name(),
            "source_event_id" => match &content.event_id {
                Some(value) => format!("COALESCE({}, {})", text(value), self.key.name()),
                None => self.key.name(),
            },
            "source_stream_id" => match &content.stream {
                Some(value) => {
                    format!("COALESCE({}, {})", text(value), self.said("source_event_id"))
                }
                None => self.said("source_event_id"),
            },
            "integration_type" => {
                let layout = &self.layout;
                let to = integration(
                    content.integration.as_deref(),
                    layout.to.as_ref(),
                    &layout.routes,
                    &content.event_type,
                    Dialect::Mysql,
                );
                // The ledger's columns hold no more.
                format!("LEFT(COALESCE({to}, '(none)'), 120)")
            }
            "besides" => {
                let (to, routes) = (self.layout.to.as_ref(), &self.layout.routes);
                let list = besides(to, routes, &content.event_type, Dialect::Mysql);
                list.unwrap_or_else(|| "JSON_ARRAY()".to_owned())
            }
            "event_type" => format!("COALESCE({}, '')", text(&content.event_type)),
            // What is no JSON is delivered as the text that it is.
            "payload" => {
                let body = text(&content.payload);
                format!("COALESCE({}({body}), 'null')", self.function("json_of"))
            }
            "headers" => match &content.headers {
                Some(value) => {
                    let headers = text(value);
                    // JSON_VALID itself fails on what is nested too deeply.
                    format!(
                        "CASE WHEN {}({headers}) = {headers} THEN {headers} END",
                        self.function("json_of")
                    )
                }
                None => "NULL".to_owned(),
            },
            "tenant_id" => optional(content.tenant_id.as_ref()),
            "user_id" => optional(content.user_id.as_ref()),
            "correlation_id" => optional(content.correlation_id.as_ref()),
            "causation_id" => optional(content.causation_id.as_ref()),
            "source" => optional(content.source.as_ref()),
            "ordering_key" => optional(content.ordering_key.as_ref()),
            "schema_version" => count(content.schema_version.as_ref(), 1, 0),
            "occurred_at" => self.time(content.occurred_at.as_ref(), "NULL"),
            "created_at" => {
                self.time(content.created_at.as_ref(), "TIMESTAMP'1970-01-01 00:00:00'")
            }
            "due_at" => {
                let otherwise = match &content.created_at {
                    // Many programs write local times there, which may lie ahead.
                    Some(_) => format!("LEAST({}, UTC_TIMESTAMP(6))", self.said("created_at")),
                    // A row that says no time at all is due at once.
                    None => "UTC_TIMESTAMP(6)".to_owned(),
                };
                self.time(state.due_at.as_ref(), &otherwise)
            }
            "attempts" => count(state.attempts.as_ref(), 0, 0),
            "max_attempts" => count(content.max_attempts.as_ref(), 10, 1),
            "status" => format!("LEFT(COALESCE({}, '(none)'), 20)", text(&state.status)),
            "sent_at" => self.time(state.sent_at.as_ref(), "NULL"),
            "updated_at" => {
                format!("COALESCE({}, {})", self.said("sent_at"), self.said("created_at"))
            }
            "last_error" => match &state.last_error {
                // What the ledger's column holds.
                Some(value) => format!("LEFT({}, 5000)", text(value)),
                None => "NULL".to_owned(),
            },
            "bytes" => {
                let stored = content.stored.as_ref().unwrap_or(&content.payload);
                let headers = match &content.headers {
                    Some(value) => format!(" + COALESCE(OCTET_LENGTH({}), 0)", text(value)),
                    None => String::new(),
                };
                format!("COALESCE(OCTET_LENGTH({stored}), 0){headers}")
            }
            _ => "NULL".to_owned(),
        }
    }

    /// What the row says, with what the ledger `n` alone knows about it.
    pub(super) fn shown(&self, column: &str) -> String {
        let said = self.said(column);
        if column == "headers" && self.layout.can_replay() {
            // As text: clients are not told that MySQL's JSON is one.
            return format!(
                "IF(n.is_replay, CONVERT(JSON_SET(COALESCE({said}, '{{}}'), '$.\"{REPLAY_HEADER}\"', {}) USING utf8mb4), \
                 {said})",
                self.key.name()
            );
        }
        said
    }

    /// A function of the ledger.
    fn function(&self, name: &str) -> String {
        format!("{}.{name}", backticked(&self.ledger))
    }

    /// The same over another row.
    pub(super) fn said_of(&self, column: &str, row: &str) -> String {
        for_row(&self.said(column), row)
    }

    /// A time in UTC, within what clients can hold. What the session's time zone changes is changed back.
    fn time(&self, value: Option<&String>, otherwise: &str) -> String {
        let Some(value) = value else { return otherwise.to_owned() };
        let value = if self.is_in_zone_of_session(value) { in_utc(value) } else { value.clone() };
        let time = format!("CAST(({value}) AS DATETIME(6))");
        format!(
            "COALESCE(CASE WHEN {time} BETWEEN '1000-01-01' AND '9999-12-31 23:59:59.999999' THEN {time} END, \
             {otherwise})"
        )
    }

    /// Whether an expression is a column of the type TIMESTAMP.
    pub(super) fn is_in_zone_of_session(&self, value: &str) -> bool {
        let read: Vec<_> = columns(value).into_iter().collect();
        let [column] = &*read else { return false };
        let is_alone = [format!("m.{column}"), format!("m.{}", backticked(column))]
            .iter()
            .any(|alone| alone.eq_ignore_ascii_case(value.trim()));
        is_alone
            && self
                .table
                .column(column)
                .is_some_and(|column| column.kind.eq_ignore_ascii_case("timestamp"))
    }
}

/// What a column of the type TIMESTAMP holds, whatever the time zone of the session.
fn in_utc(value: &str) -> String {
    format!("TIMESTAMP'1970-01-01 00:00:00' + INTERVAL UNIX_TIMESTAMP({value}) SECOND")
}

fn text(value: &str) -> String {
    format!("CONVERT(({value}) USING utf8mb4)")
}

fn optional(value: Option<&String>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| text(value))
}

/// A count within its type, whatever the row says.
fn count(value: Option<&String>, otherwise: i32, least: i32) -> String {
    match value {
        Some(value) => format!(
            "LEAST(GREATEST(COALESCE(CAST(({value}) AS SIGNED), {otherwise}), {least}), 2147483647)"
        ),
        None => otherwise.to_string(),
    }
}
