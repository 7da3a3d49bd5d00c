//! A row from someone who knows the table, and nothing of Postroom.

use uuid::Uuid;

/// A row of the message table as SQL text, in the columns that every producer knows.
#[derive(Clone, Debug)]
pub struct PlainRow {
    columns: Vec<(&'static str, String)>,
}

impl PlainRow {
    /// A row with the columns that have no default.
    #[must_use]
    pub fn new(integration: &str) -> Self {
        let event_id = Uuid::now_v7().to_string();
        Self { columns: Vec::new() }
            .with("source_stream_id", "order-1")
            .with("source_event_id", &event_id)
            .with("integration_type", integration)
            .with("event_type", "order.created.v1")
            .with("payload", "{\"orderId\": 1}")
    }

    /// The same row with a column set.
    #[must_use]
    pub fn with(mut self, column: &'static str, value: &str) -> Self {
        self.columns.retain(|(name, _)| *name != column);
        self.columns.push((column, value.to_owned()));
        self
    }

    /// The columns and their values.
    #[must_use]
    pub fn columns(&self) -> Vec<(&'static str, &str)> {
        self.columns.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The value of a column that is set.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|(name, _)| *name == column).map(|(_, value)| value.as_str())
    }

    /// The INSERT that writes it into `table` and returns its id.
    #[must_use]
    pub fn insert_sql(&self, table: &str) -> String {
        format!("INSERT INTO {} RETURNING id", self.values_sql(table))
    }

    /// What follows the INTO of an INSERT. Every value is quoted: each database reads it as its
    /// column's type.
    #[must_use]
    pub fn values_sql(&self, table: &str) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        let values: Vec<_> = self
            .columns
            .iter()
            .map(|(_, value)| format!("'{}'", value.replace('\'', "''")))
            .collect();
        let (names, values) = (names.join(", "), values.join(", "));
        format!("{table} ({names}) VALUES ({values})")
    }
}
