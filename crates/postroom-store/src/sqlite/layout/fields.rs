//! The columns of Postroom's own table, out of a row of another one.

use super::Foreign;
use crate::layout::{Dialect, integration};

/// The columns, in the order of Postroom's own table.
pub(super) const NAMES: [&str; 28] = [
    "id",
    "source_stream_id",
    "source_event_id",
    "integration_type",
    "event_type",
    "payload",
    "headers",
    "tenant_id",
    "user_id",
    "correlation_id",
    "due_at",
    "attempts",
    "max_attempts",
    "status",
    "locked_at",
    "locked_by",
    "created_at",
    "updated_at",
    "sent_at",
    "last_error",
    "seq",
    "copy",
    "ordering_key",
    "causation_id",
    "source",
    "schema_version",
    "occurred_at",
    "settled",
];

const EPOCH: &str = "'1970-01-01T00:00:00.000Z'";
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

impl Foreign {
    /// What the row itself says: an expression over the row `m` for a column of Postroom's own table.
    pub(super) fn said(&self, column: &str) -> String {
        let content = &self.layout.message;
        let state = &self.layout.state;
        match column {
            "id" => self.key.expression(),
            "source_event_id" => match &content.event_id {
                Some(value) => {
                    format!("coalesce(CAST(({value}) AS TEXT), {})", self.key.expression())
                }
                None => self.key.expression(),
            },
            "source_stream_id" => match &content.stream {
                Some(value) => {
                    format!("coalesce(CAST(({value}) AS TEXT), {})", self.said("source_event_id"))
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
                    Dialect::Sqlite,
                );
                // The other databases' ledgers hold no more.
                format!("substr(coalesce({to}, '(none)'), 1, 120)")
            }
            "event_type" => format!("coalesce(CAST(({}) AS TEXT), '')", content.event_type),
            // What is no JSON is delivered as the text that it is.
            "payload" => format!(
                "CASE WHEN json_valid({0}) THEN ({0}) ELSE json_quote(CAST(({0}) AS TEXT)) END",
                content.payload
            ),
            "headers" => match &content.headers {
                Some(value) => format!("CASE WHEN json_valid({value}) THEN ({value}) END"),
                None => "NULL".to_owned(),
            },
            "tenant_id" => text(content.tenant_id.as_ref()),
            "user_id" => text(content.user_id.as_ref()),
            "correlation_id" => text(content.correlation_id.as_ref()),
            "causation_id" => text(content.causation_id.as_ref()),
            "source" => text(content.source.as_ref()),
            "ordering_key" => text(content.ordering_key.as_ref()),
            "schema_version" => count(content.schema_version.as_ref(), 1, 0),
            "occurred_at" => time(content.occurred_at.as_ref(), "NULL"),
            "created_at" => time(content.created_at.as_ref(), EPOCH),
            "due_at" => {
                let otherwise = match &content.created_at {
                    Some(_) => self.said("created_at"),
                    // A row that says no time at all is due at once.
                    None => NOW.to_owned(),
                };
                time(state.due_at.as_ref(), &otherwise)
            }
            "attempts" => count(state.attempts.as_ref(), 0, 0),
            "max_attempts" => count(content.max_attempts.as_ref(), 10, 1),
            "status" => format!("coalesce(CAST(({}) AS TEXT), '(none)')", state.status),
            "sent_at" => time(state.sent_at.as_ref(), "NULL"),
            "updated_at" => {
                format!("coalesce({}, {})", self.said("sent_at"), self.said("created_at"))
            }
            "last_error" => text(state.last_error.as_ref()),
            "seq" => format!("m.{}", self.rowid),
            "copy" => "0".to_owned(),
            // Rows have no place for the token of the last write, nor for what relays hold.
            _ => "NULL".to_owned(),
        }
    }

    /// The same, with what the ledger alone knows about it.
    pub(super) fn shown(&self, column: &str) -> String {
        let said = self.said(column);
        let of_delivery = |what: &str| {
            format!(
                "(SELECT {what} FROM {} AS d WHERE d.message_id = {})",
                self.names.put("outbox_delivery"),
                self.key.expression()
            )
        };
        if column == "headers" && self.layout.can_replay() {
            return format!(
                "CASE WHEN {} THEN json_set(coalesce({said}, '{{}}'), '$.\"{}\"', {}) ELSE {said} END",
                of_delivery("d.is_replay"),
                postroom_core::REPLAY_HEADER,
                self.key.expression()
            );
        }
        if self.keeps_failures {
            return said;
        }
        match column {
            "status" => format!(
                "CASE {said} WHEN 'PENDING' THEN coalesce({}, 'PENDING') ELSE {said} END",
                of_delivery(
                    "CASE d.state WHEN 'd' THEN 'DEAD' WHEN 'f' THEN 'FAILED' ELSE 'PENDING' END"
                )
            ),
            "due_at" => {
                let ledger = [of_delivery(&text_of_ms("d.due_at"))];
                let ledger =
                    ledger.into_iter().chain(self.has_no_time().then(|| self.due_of_parcel()));
                format!("coalesce({}, {said})", ledger.collect::<Vec<_>>().join(", "))
            }
            "attempts" => format!("coalesce({}, {said})", of_delivery("d.attempts")),
            "last_error" => format!("coalesce({}, {said})", of_delivery("d.last_error")),
            _ => said,
        }
    }

    /// The expression whose size is that of the body as it is stored.
    pub(super) fn stored(&self) -> &str {
        self.layout.message.stored.as_deref().unwrap_or(&self.layout.message.payload)
    }

    fn has_no_time(&self) -> bool {
        self.layout.message.created_at.is_none() && self.layout.state.due_at.is_none()
    }

    /// When a row without a time was noticed.
    fn due_of_parcel(&self) -> String {
        format!(
            "(SELECT {} FROM {} AS p WHERE p.integration = {} AND p.seq = m.{} AND p.message_id = {})",
            text_of_ms("p.due_at"),
            self.names.put("outbox_parcel"),
            self.said("integration_type"),
            self.rowid,
            self.key.expression()
        )
    }
}

/// Milliseconds since 1970, of a time as text.
pub(super) fn ms(time: &str) -> String {
    format!("CAST(round((julianday({time}) - 2440587.5) * 86400000.0) AS INTEGER)")
}

fn text_of_ms(ms: &str) -> String {
    format!("strftime('%Y-%m-%dT%H:%M:%fZ', {ms} / 1000.0, 'unixepoch')")
}

fn text(value: Option<&String>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("CAST(({value}) AS TEXT)"))
}

/// A time in the format of Postroom's own table.
fn time(value: Option<&String>, otherwise: &str) -> String {
    match value {
        Some(value) => format!("coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', ({value})), {otherwise})"),
        None => otherwise.to_owned(),
    }
}

/// A count within its type, whatever the row says.
fn count(value: Option<&String>, otherwise: i32, least: i32) -> String {
    match value {
        Some(value) => {
            format!(
                "min(max(coalesce(CAST(({value}) AS INTEGER), {otherwise}), {least}), 2147483647)"
            )
        }
        None => otherwise.to_string(),
    }
}
