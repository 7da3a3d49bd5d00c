//! The INSERT, and the rows it is given.

use crate::wrapping::{Wrapping, no_json, time};
use postroom_core::{Message, Outcome};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// What a column can hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Field {
    Attempt,
    Causation,
    Correlation,
    CreatedAt,
    EventId,
    EventType,
    Headers,
    IdempotencyKey,
    MessageId,
    OccurredAt,
    Payload,
    SchemaVersion,
    Source,
    Stream,
    Tenant,
    User,
}

pub(super) const FIELDS: [(&str, Field); 16] = [
    ("attempt", Field::Attempt),
    ("causation", Field::Causation),
    ("correlation", Field::Correlation),
    ("created_at", Field::CreatedAt),
    ("event_id", Field::EventId),
    ("event_type", Field::EventType),
    ("headers", Field::Headers),
    ("idempotency_key", Field::IdempotencyKey),
    ("message_id", Field::MessageId),
    ("occurred_at", Field::OccurredAt),
    ("payload", Field::Payload),
    ("schema_version", Field::SchemaVersion),
    ("source", Field::Source),
    ("stream", Field::Stream),
    ("tenant", Field::Tenant),
    ("user", Field::User),
];

/// The columns of an integration that names none.
pub(super) const DEFAULT_COLUMNS: [(&str, Field); 7] = [
    ("idempotency_key", Field::IdempotencyKey),
    ("event_id", Field::EventId),
    ("event_type", Field::EventType),
    ("stream", Field::Stream),
    ("occurred_at", Field::OccurredAt),
    ("headers", Field::Headers),
    ("payload", Field::Payload),
];

/// An INSERT of any number of rows, given as one JSON array: PostgreSQL makes of each value what
/// its column is, whatever type that has.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    table: String,
    columns: Vec<(String, Field)>,
    before: String,
    after: String,
}

impl Statement {
    pub(super) fn new(table: &[&str], columns: Vec<(String, Field)>) -> Self {
        let parts: Vec<String> = table.iter().map(|part| quoted(part)).collect();
        let table = parts.join(".");
        let names: Vec<String> = columns.iter().map(|(column, _)| quoted(column)).collect();
        let names = names.join(", ");
        let keys = columns.iter().filter(|(_, field)| *field == Field::IdempotencyKey);
        let keys: Vec<String> = keys.map(|(column, _)| quoted(column)).collect();
        let before = format!(
            "INSERT INTO {table} ({names}) SELECT {names} FROM json_populate_recordset(NULL::{table}, "
        );
        let after = format!(") ON CONFLICT ({}) DO NOTHING", keys.join(", "));
        Self { table, columns, before, after }
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// With the rows as its parameter.
    pub(super) fn insert(&self) -> String {
        format!("{}$1::text::json{}", self.before, self.after)
    }

    /// Looks at table, columns, constraint and rights, and inserts nothing.
    pub(super) fn explain(&self) -> String {
        format!("EXPLAIN {}'[]'{}", self.before, self.after)
    }

    /// One row as a JSON object.
    pub(super) fn row(&self, wrapping: &Wrapping, message: &Message) -> Result<String, Outcome> {
        let mut wrapped = wrapping.wrap(message)?;
        let headers = wrapped.take_headers("ce-");
        let headers: Map<String, Value> =
            headers.map(|(name, value)| (name.into_owned(), value.into())).collect();
        let mut row = String::from("{");
        for (column, field) in &self.columns {
            if row.len() > 1 {
                row.push(',');
            }
            row.push_str(&json!(column).to_string());
            row.push(':');
            let value = match field {
                Field::Payload => {
                    // Its own bytes; what is no JSON would break the rows beside it.
                    let _: &RawValue =
                        serde_json::from_str(&wrapped.body).map_err(|_| no_json())?;
                    row.push_str(&wrapped.body);
                    continue;
                }
                Field::Headers => json!(headers),
                // What the constraint is on: the header beside it holds the key alone.
                Field::IdempotencyKey => json!(wrapped.once),
                Field::Attempt => json!(u64::from(message.attempts) + 1),
                Field::Causation => json!(message.causation_id),
                Field::Correlation => json!(message.correlation_id),
                Field::CreatedAt => json!(time(message.created_at)),
                Field::EventId => json!(message.event_id),
                Field::EventType => json!(message.event_type),
                Field::MessageId => json!(message.id.to_string()),
                Field::OccurredAt => json!(message.occurred_at.map(time)),
                Field::SchemaVersion => json!(message.schema_version),
                Field::Source => json!(message.source),
                Field::Stream => json!(message.stream_id),
                Field::Tenant => json!(message.tenant_id),
                Field::User => json!(message.user_id),
            };
            row.push_str(&value.to_string());
        }
        row.push('}');
        Ok(row)
    }
}

/// An identifier, whatever it holds.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::message;

    #[test]
    fn names_are_quoted_and_rows_keep_the_payloads_bytes() {
        let columns = vec![("k\"".to_owned(), Field::IdempotencyKey), ("p".into(), Field::Payload)];
        let statement = Statement::new(&["a", "b;"], columns);
        assert_eq!(
            statement.insert(),
            "INSERT INTO \"a\".\"b;\" (\"k\"\"\", \"p\") SELECT \"k\"\"\", \"p\" FROM \
             json_populate_recordset(NULL::\"a\".\"b;\", $1::text::json) ON CONFLICT (\"k\"\"\") \
             DO NOTHING"
        );
        let row = statement.row(&Wrapping::default(), &message("e-1")).unwrap();
        assert_eq!(row, r#"{"k\"":"test:contract/order-1/e-1","p":{"event": "e-1", "sum": 12.5}}"#);
    }
}
