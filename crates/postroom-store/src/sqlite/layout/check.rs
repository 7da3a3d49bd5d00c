//! Comparing a layout with the live table.

use super::fields::NAMES;
use super::made::TRIGGERS;
use super::{Foreign, failed};
use crate::layout::{Dialect, Layout, Mismatch, mismatches, quoted};
use postroom_core::{Finding, StoreError, StoreResult};
use sqlx::{AssertSqlSafe, Error, Executor as _, SqlSafeStr as _, SqliteConnection};

impl Foreign {
    /// What the catalogue alone shows: the layout names columns that are not there, or a key that does not find
    /// one row.
    pub(super) fn mismatches(&self) -> Vec<Mismatch> {
        mismatches(&self.layout, &self.table, Dialect::Sqlite)
    }

    pub(super) fn refused(&self, problem: &str) -> StoreError {
        self.layout.refused(problem)
    }
}

/// Everything that keeps the layout from working on its table as it stands.
///
/// # Errors
/// When the file cannot be read, or there is no such table.
pub(in crate::sqlite) async fn examine(
    connection: &mut SqliteConnection,
    layout: &Layout,
) -> StoreResult<Vec<Finding>> {
    let foreign = Foreign::find(connection, layout).await?;
    let missing = foreign.mismatches();
    let mut findings: Vec<Finding> =
        missing.iter().map(|(problem, remedy)| Finding::fault(problem, remedy)).collect();
    let table = &foreign.table;
    if missing.is_empty() {
        for (what, sql) in expressions(&foreign) {
            // Prepared, and not explained: EXPLAIN of a statement that fires triggers can end in a crash inside SQLite.
            let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await;
            if let Err(error) = prepared {
                let Error::Database(refused) = &error else { return Err(failed(error)) };
                findings.push(Finding::fault(
                    format!(
                        "{}: what the layout says of {what} does not fit: {}",
                        table.name,
                        refused.message()
                    ),
                    "correct the expression in the layout, then run `postroom migrate`",
                ));
            }
        }
    }
    let triggers = TRIGGERS.map(|name| foreign.names.put(name));
    for trigger in triggers.iter().filter(|name| !table.triggers.contains(name)) {
        findings.push(Finding::fault(
            format!("{}: the trigger {trigger} is missing", table.name),
            "run `postroom migrate`, then `postroom reconcile`",
        ));
    }
    findings.extend(left_alone(&foreign, connection).await.map_err(failed)?);
    Ok(findings)
}

/// A statement for each expression, by what it is for.
fn expressions(foreign: &Foreign) -> Vec<(String, String)> {
    let table = &foreign.table.name;
    let read = |name: &&str| {
        ((*name).to_owned(), format!("SELECT {} FROM {table} AS m", foreign.said(name)))
    };
    let mut all: Vec<_> = NAMES.iter().map(read).collect();
    for (key, set) in foreign.layout.assignments() {
        for (column, value) in set.iter().filter(|_| key != "claimed") {
            let value = ["$attempts", "$error", "$due_ms", "$due", "$at_ms", "$at"]
                .iter()
                .fold(value.clone(), |sql, name| sql.replace(name, "NULL"));
            let sql = format!("UPDATE {table} AS m SET {} = {value}", quoted(column));
            all.push((format!("{key}.{column}"), sql));
        }
    }
    all
}

/// Rows whose status the layout does not know.
async fn left_alone(
    foreign: &Foreign,
    connection: &mut SqliteConnection,
) -> Result<Vec<Finding>, Error> {
    let sql = format!(
        "SELECT status, count(*) FROM (SELECT {} AS status FROM {} AS m)
         WHERE status NOT IN ('PENDING', 'FAILED', 'SENT', 'DEAD') GROUP BY status ORDER BY status",
        foreign.said("status"),
        foreign.table.name
    );
    let rows: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let finding = |(status, count): (String, i64)| {
        Finding::warning(
            format!(
                "{count} rows have the status {status}, which their layout does not know: they are left alone"
            ),
            "name it in state.status of the layout, or correct the rows",
        )
    };
    Ok(rows.into_iter().map(finding).collect())
}
