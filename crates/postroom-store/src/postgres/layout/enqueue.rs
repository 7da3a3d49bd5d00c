//! The function that enqueues into the table, in any language.

use super::Foreign;
use crate::layout::{Part, quoted, unheld};

const ENQUEUE: &str = include_str!("../../../migrations/postgres/layout/enqueue.sql");

/// What an expression of `insert` can name: the value in the function, and its type. The longest first: none is the
/// beginning of another.
const VALUES: [(&str, &str, &str); 16] = [
    ("$schema_version", "enqueue.schema_version", "int"),
    ("$correlation_id", "enqueue.correlation", "text"),
    ("$occurred_at", "enqueue.occurred_at", "timestamptz"),
    ("$ordering_key", "enqueue.ordering_key", "text"),
    ("$causation_id", "enqueue.causation", "text"),
    ("$max_attempts", "enqueue.max_attempts", "int"),
    ("$integration", "enqueue.integration", "text"),
    ("$event_type", "enqueue.event_type", "text"),
    ("$tenant_id", "enqueue.tenant", "text"),
    ("$event_id", "event", "text"),
    ("$payload", "enqueue.payload", "jsonb"),
    ("$headers", "enqueue.headers", "jsonb"),
    ("$user_id", "enqueue.user_id", "text"),
    ("$source", "enqueue.source", "text"),
    ("$stream", "coalesce(enqueue.stream, event)", "text"),
    ("$due", "coalesce(enqueue.due_at, now())", "timestamptz"),
];

/// An expression of `insert` as the function has it.
fn with_values(expression: &str) -> String {
    VALUES.iter().fold(expression.to_owned(), |sql, (name, value, _)| sql.replace(name, value))
}

/// The same with a null of the right type for each value, to be prepared outside of the function.
pub(super) fn with_nulls(expression: &str) -> String {
    VALUES.iter().fold(expression.to_owned(), |sql, (name, _, kind)| {
        sql.replace(name, &format!("NULL::{kind}"))
    })
}

impl Foreign {
    pub(super) fn enqueue(&self) -> String {
        let insert = &self.layout.insert;
        let columns: Vec<_> = insert.keys().map(|column| quoted(column)).collect();
        let values: Vec<_> = insert.values().map(|value| with_values(value)).collect();
        // By its key, where that is given: there is an index on it.
        let key = &self.layout.key;
        let same = if key.iter().all(|column| insert.contains_key(column)) {
            let same = key.iter().map(|column| {
                let place = insert.keys().position(|name| name == column).unwrap_or_default();
                format!("m.{} = {}", quoted(column), values[place])
            });
            same.collect::<Vec<_>>().join(" AND ")
        } else {
            format!("{} = event", self.field("source_event_id"))
        };
        let mut lost = "WHEN false THEN NULL".to_owned();
        for Part { name, on_postgres, .. } in unheld(insert) {
            lost.push_str(&format!("\n        WHEN {on_postgres} THEN '{name}'"));
        }
        ENQUEUE
            .replace("{lost}", &lost)
            .replace("{same}", &same)
            .replace("{columns}", &columns.join(", "))
            .replace("{values}", &values.join(", "))
            .replace("{key}", &self.key.expression())
            .replace("{integration}", &self.field("integration_type"))
            .replace("{id}", self.key.id_type())
            .replace("{schema}", &self.schema)
            .replace("{table}", &self.table.name)
    }
}
