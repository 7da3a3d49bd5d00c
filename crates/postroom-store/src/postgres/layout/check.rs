//! Comparing a layout with the live table.

use super::Foreign;
use super::key::Key;
use crate::layout::{Dialect, Mismatch, columns, mismatches};
use postroom_core::{Finding, StoreResult};
use tokio_postgres::Client;

/// The triggers without which rows or changes are not noticed.
const TRIGGERS: [&str; 3] = ["postroom_feed", "postroom_follow", "postroom_emptied"];

impl Foreign {
    /// What the catalogue alone shows: the layout names columns that are not there, or a key that does not find
    /// one row.
    pub(super) fn mismatches(&self) -> Vec<Mismatch> {
        let mut found = mismatches(&self.layout, &self.table, Dialect::Postgres);
        for column in self.layout.key.iter().filter_map(|column| self.table.column(column)) {
            if !Key::can_be(&column.kind) {
                found.push((
                    format!(
                        "{}: the key column {} is of the type {}, by which rows cannot be looked up",
                        self.table.name, column.name, column.kind
                    ),
                    "name other columns in `key`: numbers, texts, uuids, dates or times".to_owned(),
                ));
            }
        }
        found
    }

    /// Everything that keeps the layout from working on the table as it stands.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub(crate) async fn examine(&self, client: &Client) -> StoreResult<Vec<Finding>> {
        let mut wrong = self.mismatches();
        if wrong.is_empty() {
            wrong = self.misfits(client, "").await?;
        }
        let mut findings: Vec<Finding> =
            wrong.iter().map(|(problem, remedy)| Finding::fault(problem, remedy)).collect();
        findings.extend(self.hidden_rows(client).await?);
        if self.table.is_partitioned && self.layout.has_triggers() {
            findings.push(Finding::warning(
                format!(
                    "{}: rows that are inserted into one of its partitions, and not into the table, are not \
                     noticed, nor is a partition that is attached with rows",
                    self.table.name
                ),
                "insert into the table itself, or set feed = \"poll\"",
            ));
        }
        if self.layout.has_triggers() {
            for trigger in TRIGGERS {
                if !self.has_trigger(trigger) {
                    findings.push(Finding::fault(
                        format!(
                            "{}: the trigger {trigger} is missing or disabled",
                            self.table.name
                        ),
                        format!(
                            "`ALTER TABLE {} ENABLE TRIGGER {trigger}` where it is disabled, else \
                             `postroom migrate`; then `postroom reconcile`",
                            self.table.name
                        ),
                    ));
                }
            }
        } else if self.open_index().is_none() {
            let columns: Vec<_> = columns(&self.layout.state.status).into_iter().collect();
            findings.push(Finding::warning(
                format!("{}: no index finds open rows: every poll reads the whole table", self.table.name),
                format!(
                    "`CREATE INDEX CONCURRENTLY ON {} ({}) WHERE {}`, and name that condition in state.open",
                    self.table.name,
                    columns.first().map_or("id", String::as_str),
                    self.layout.state.open.as_deref().unwrap_or("the row is open").replace("m.", "")
                ),
            ));
        }
        Ok(findings)
    }

    /// Whether all triggers are there that the ledger needs. The one that wakes relays may be off.
    pub(super) fn has_all_triggers(&self) -> bool {
        !self.layout.has_triggers() || TRIGGERS.iter().all(|trigger| self.has_trigger(trigger))
    }

    fn has_trigger(&self, name: &str) -> bool {
        self.table.triggers.iter().any(|trigger| trigger == name)
    }

    /// The index by which a poll finds open rows.
    fn open_index(&self) -> Option<&str> {
        let open = self.layout.state.open.as_deref()?;
        let open = columns(open);
        self.table.indexed.iter().find(|column| open.contains(*column)).map(String::as_str).or_else(
            || {
                // A partial index on another column serves as well.
                self.table.has_partial_index.then_some("")
            },
        )
    }
}
