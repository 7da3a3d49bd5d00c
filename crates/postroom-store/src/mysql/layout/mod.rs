//! The ledger of a table that somebody else made.
//!
//! A [`Foreign`] is a layout together with what the catalogue says about its table. The ledger is a database of its own
//! on the same server. There `integration_outbox` is a table that holds the state of each row, a number, and no content.
//! Triggers keep it in step with the table, in both directions: there are no triggers on views here that could write
//! for it. So the store's statements are the same texts; those that need a row's content, or must know whether it is
//! still there, read the view `outbox_row`, which joins the two (`statement.rs`).

mod adopt;
mod catalogue;
mod check;
mod fields;
mod key;
mod made;
mod migrate;
#[cfg(test)]
mod plan_tests;
mod rows;
mod statement;
mod sync;

pub(super) use adopt::propose;
pub(super) use check::examine;
pub(super) use key::ledger_id;
pub(super) use made::entering;
pub(super) use migrate::{catch_up, check_applied, grants, plan, remove};
pub(super) use rows::Rows;
pub(super) use statement::of_rows;

use super::error::store_error;
use crate::layout::{Dialect, Layout, Table, backticked, columns as expression_columns, moved};
use crate::mysql::session::Session;
use key::{Key, KeyColumn};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::Error;

/// In which kind of SQL layouts are written: nothing in a trigger may fail, so not in strict mode.
pub(super) const MODE: &str = "SET SESSION sql_mode = 'PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'";

/// A table that somebody else made, and how it is read and written.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    /// With its settings put in.
    layout: Layout,
    table: Table,
    /// Where the table is, and its plain name.
    database: String,
    name: String,
    /// The database that the ledger is.
    ledger: String,
    key: Key,
    /// Whether its time of creation changes with every UPDATE, so that it tells no rows apart.
    is_touched: bool,
}

impl Foreign {
    /// Looks the table up.
    ///
    /// # Errors
    /// When there is no such table, or its key is not what the layout says.
    pub(super) async fn find(
        connection: &mut Session,
        layout: &Layout,
        database: &str,
    ) -> StoreResult<Self> {
        layout.check()?;
        match catalogue::find(connection, &layout.table, database).await.map_err(failed)? {
            Some(found) => Self::of(layout, found, database),
            None => Err(StoreError::plain(
                StoreErrorKind::Schema,
                format!(
                    "there is no table {}: run `postroom migrate`, or correct `table` in its layout",
                    layout.table
                ),
            )),
        }
    }

    fn of(layout: &Layout, found: catalogue::Found, database: &str) -> StoreResult<Self> {
        let ledger = layout.ledger_database(database);
        let layout = layout.resolved(&backticked(&ledger), Dialect::Mysql)?;
        let refused = |problem: String| {
            Err(StoreError::plain(StoreErrorKind::Schema, format!("{}: {problem}", layout.table)))
        };
        if !layout.has_triggers() {
            return refused(
                "a poll feeds ledgers on PostgreSQL alone: leave `feed` out, so that triggers do"
                    .to_owned(),
            );
        }
        if !found.engine.eq_ignore_ascii_case("InnoDB") {
            return refused(format!(
                "its engine is {}, which keeps no transactions: `ALTER TABLE {} ENGINE = InnoDB`",
                found.engine, found.table.name
            ));
        }
        let mut columns = Vec::new();
        for name in &layout.key {
            let Some(column) = found.table.column(name) else {
                return refused(format!(
                    "it has no column {name}, which `key` in its layout names"
                ));
            };
            let column = KeyColumn {
                name: column.name.clone(),
                kind: column.kind.clone(),
                length: column.length,
                declared: found.declared.get(&column.name).cloned().unwrap_or_default(),
            };
            if !column.can_be() {
                return refused(format!(
                    "the key column {name} is of the type {}, by which rows cannot be looked up: name numbers, \
                     texts of limited length, binary uuids or times in `key`",
                    column.kind
                ));
            }
            columns.push(column);
        }
        let is_touched = |expression: &Option<String>| {
            let read = expression.as_deref().map(expression_columns).unwrap_or_default();
            let read = read.iter().filter_map(|name| found.table.column(name));
            read.into_iter().any(|column| found.touched.contains(&column.name))
        };
        if is_touched(&layout.identity) {
            return refused(
                "`identity` in its layout names a column that the server writes at every UPDATE (ON UPDATE): it \
                 would make another message of the row with each outcome"
                    .to_owned(),
            );
        }
        let is_touched = is_touched(&layout.message.created_at);
        let catalogue::Found { table, database, name, .. } = found;
        let key = Key::of(Vec::new(), None);
        let mut foreign = Self { key, layout, table, database, name, ledger, is_touched };
        let identity = foreign.identity(&columns);
        foreign.key = Key::of(columns, identity);
        Ok(foreign)
    }

    /// What tells apart two rows that had the same key: what the layout says; otherwise, where the key is a number,
    /// the time of creation.
    fn identity(&self, key: &[KeyColumn]) -> Option<String> {
        let is_number = key.iter().all(KeyColumn::is_whole_number);
        let is_fit = is_number && !self.is_touched;
        let by_time = || is_fit.then(|| self.layout.message.created_at.clone()).flatten();
        let identity = self.layout.identity.clone().or_else(by_time)?;
        // The columns themselves: an expression over them may depend on the session, and this must not.
        let parts: Vec<_> = expression_columns(&identity)
            .iter()
            .filter_map(|name| self.table.column(name))
            .map(|column| {
                let name = format!("m.{}", backticked(&column.name));
                match column.kind.eq_ignore_ascii_case("timestamp") {
                    true => format!("CAST(UNIX_TIMESTAMP({name}) AS CHAR)"),
                    false => format!("CONVERT({name} USING utf8mb4)"),
                }
            })
            .collect();
        match &*parts {
            [] => Some(format!("CONVERT(({identity}) USING utf8mb4)")),
            [one] => Some(one.clone()),
            several => Some(format!("CONCAT_WS('/', {})", several.join(", "))),
        }
    }

    /// What the rows are selected by whose names begin with a text, of `FROM table AS m`.
    pub(super) fn begins_with(&self, text: &str) -> Option<(String, Vec<String>)> {
        let (condition, values) = self.key.begins_with(text)?;
        let sql = format!(
            "SELECT {} FROM {} AS m WHERE {condition} LIMIT 100",
            self.key.id(),
            self.table.name
        );
        Some((sql, values))
    }
}

/// An expression over another row, such as `NEW`.
fn for_row(expression: &str, row: &str) -> String {
    moved(expression, row, backticked)
}

/// A text as SQL writes it in the mode that layouts are written in.
fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn failed(error: Error) -> StoreError {
    store_error("looking at the table of a layout", error)
}
