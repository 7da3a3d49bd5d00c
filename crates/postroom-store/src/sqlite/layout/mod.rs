//! The ledger of a table that somebody else made.
//!
//! A [`Foreign`] is a layout together with what the catalogue says about its table. The names of its ledger begin with
//! that of the table (`names.rs`). `integration_outbox` among them is a view of the table in the columns of Postroom's
//! own; what is written to the view, its triggers write to the table as the layout has it (`made.rs`). So the store's
//! statements are the same, but for the names and for how they find a row by its id (`statement.rs`).

mod adopt;
mod besides;
mod catalogue;
mod check;
mod fields;
mod key;
mod made;
mod migrate;
mod names;
#[cfg(test)]
mod plan_tests;
mod statement;

pub(super) use adopt::propose;
pub(super) use besides::expect_own_outbox;
pub(super) use check::examine;
pub(super) use migrate::{check_applied, plan, remove};
pub(super) use names::Names;

use super::error::store_error;
use crate::layout::{Dialect, Layout, Table};
use key::{Key, KeyColumn};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::{Error, SqliteConnection};

/// A table that somebody else made, and how it is read and written.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    /// With its settings put in.
    layout: Layout,
    table: Table,
    /// Those of its ledger.
    names: Names,
    /// The name by which its rows are found by their number: a column may have taken the usual one.
    rowid: &'static str,
    key: Key,
    /// Whether its rows say themselves how often they failed.
    keeps_failures: bool,
}

impl Foreign {
    /// Looks the table up.
    ///
    /// # Errors
    /// When there is no such table, or its key is not what the layout says.
    pub(super) async fn find(
        connection: &mut SqliteConnection,
        layout: &Layout,
    ) -> StoreResult<Self> {
        layout.check()?;
        match catalogue::find(connection, &layout.table).await.map_err(failed)? {
            Some(found) => Self::of(layout, found),
            None => Err(StoreError::plain(
                StoreErrorKind::Schema,
                format!(
                    "there is no table {}: run `postroom migrate`, or correct `table` in its layout",
                    layout.table
                ),
            )),
        }
    }

    fn of(layout: &Layout, found: catalogue::Found) -> StoreResult<Self> {
        let layout = layout.resolved("main", Dialect::Sqlite)?;
        let refused = |problem: String| {
            Err(StoreError::plain(StoreErrorKind::Schema, format!("{}: {problem}", layout.table)))
        };
        if !layout.has_triggers() {
            return refused(
                "a poll feeds ledgers on PostgreSQL alone: leave `feed` out, so that triggers do"
                    .to_owned(),
            );
        }
        let catalogue::Found { table, rowid } = found;
        let Some(rowid) = rowid else {
            return refused(
                "its rows have no rowid (WITHOUT ROWID): Postroom finds rows by it".to_owned(),
            );
        };
        let mut columns = Vec::new();
        for name in &layout.key {
            let Some(column) = table.column(name) else {
                return refused(format!(
                    "it has no column {name}, which `key` in its layout names: `postroom check` compares the two"
                ));
            };
            if column.kind.to_ascii_uppercase().contains("BLOB") {
                return refused(format!(
                    "the key column {name} is a BLOB; keys are texts or numbers here"
                ));
            }
            columns.push(KeyColumn { name: column.name.clone(), kind: column.kind.clone() });
        }
        let key = Key::of(&columns, identity(&layout, &columns).as_deref());
        let keeps_failures = layout.keeps_failures();
        let names = Names::of(Some(&layout));
        Ok(Self { layout, table, names, rowid, key, keeps_failures })
    }
}

/// What tells apart two rows that had the same key: what the layout says; otherwise, where the key is a number, the
/// time of creation.
fn identity(layout: &Layout, key: &[KeyColumn]) -> Option<String> {
    let is_number = key.iter().all(KeyColumn::is_whole_number);
    let by_time = || is_number.then(|| layout.message.created_at.clone()).flatten();
    layout.identity.clone().or_else(by_time)
}

fn failed(error: Error) -> StoreError {
    store_error("looking at the table of a layout", error)
}
