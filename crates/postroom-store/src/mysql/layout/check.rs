//! Comparing a layout with the live table.

use super::fields::{CONTENT, STATE};
use super::made::assigned;
use super::{Foreign, catalogue, failed};
use crate::layout::{Assignments, Dialect, Layout, Mismatch, mismatches};
use crate::mysql::error::number;
use crate::mysql::fetch;
use crate::mysql::session::Session;
use postroom_core::{Finding, StoreError, StoreResult};
use sqlx::{AssertSqlSafe, Error, Executor as _, Row as _, SqlSafeStr as _};

/// There is no such function, or no such database, or it may not be called: the ledger is not made yet.
const NOT_MADE_YET: [u16; 3] = [1305, 1049, 1370];
/// How many rows are read to see whether an expression fails on some. Nothing in a trigger may fail.
const TRIED: usize = 1_000;

impl Foreign {
    /// What the catalogue alone shows: the layout names columns that are not there, or a key that does not find
    /// one row.
    pub(super) fn mismatches(&self) -> Vec<Mismatch> {
        mismatches(&self.layout, &self.table, Dialect::Mysql)
    }

    pub(super) fn refused(&self, problem: &str) -> StoreError {
        self.layout.refused(problem)
    }

    /// Expressions that the database refuses, each by itself, by the key of the layout.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub(super) async fn misfits(&self, connection: &mut Session) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        for (what, sql) in self.expressions() {
            let prepared = connection.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
            let tried = match prepared {
                Ok(_) => fetch(connection, sql).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = tried {
                let Error::Database(refused) = &error else { return Err(error) };
                let is_of_ledger = number(&error).is_some_and(|code| NOT_MADE_YET.contains(&code))
                    && refused.message().contains(&self.ledger);
                if !is_of_ledger {
                    found.push(format!("{what} does not fit: {}", refused.message()));
                }
            }
        }
        Ok(found)
    }

    /// A statement for each expression, by what it is for.
    fn expressions(&self) -> Vec<(String, String)> {
        let table = &self.table.name;
        let read = |name: &&str| {
            let content = &self.layout.message;
            // As the layout has it, without the functions of a ledger that may not be there yet.
            let expression = match *name {
                "payload" => content.payload.clone(),
                "headers" => content.headers.clone().unwrap_or_else(|| "NULL".to_owned()),
                name => self.said(name),
            };
            let sql = format!(
                "SELECT COUNT({expression}) FROM (SELECT * FROM {table} LIMIT {TRIED}) AS m"
            );
            (format!("what the layout says of {name}"), sql)
        };
        let mut all: Vec<_> = ["id"].iter().chain(&STATE).chain(&CONTENT).map(read).collect();
        for (key, set) in self.layout.assignments() {
            for (column, value) in set.iter().filter(|_| key != "claimed") {
                let alone = Assignments::from([(column.clone(), value.clone())]);
                let set = assigned(&alone, |name| match name {
                    "attempts" => "1",
                    "error" => "''",
                    _ => "UTC_TIMESTAMP(6)",
                });
                all.push((
                    format!("{key}.{column}"),
                    format!("UPDATE {table} AS m SET {set} WHERE FALSE"),
                ));
            }
        }
        all
    }
}

/// Everything that keeps the layout from working on its table as it stands.
///
/// # Errors
/// When the database cannot be asked, or there is no such table.
pub(in crate::mysql) async fn examine(
    connection: &mut Session,
    layout: &Layout,
    database: &str,
) -> StoreResult<Vec<Finding>> {
    let foreign = Foreign::find(connection, layout, database).await?;
    let missing = foreign.mismatches();
    let mut findings: Vec<Finding> =
        missing.iter().map(|(problem, remedy)| Finding::fault(problem, remedy)).collect();
    let table = &foreign.table.name;
    if missing.is_empty() {
        for misfit in foreign.misfits(connection).await.map_err(failed)? {
            findings.push(Finding::fault(
                format!("{table}: {misfit}"),
                "correct the expression in the layout, then run `postroom migrate`",
            ));
        }
    }
    for trigger in foreign.missing_triggers(connection).await.map_err(failed)? {
        findings.push(Finding::fault(
            format!("{table}: the trigger {trigger} is missing, or is another table's"),
            "run `postroom migrate`, then `postroom reconcile`",
        ));
    }
    if foreign.is_touched && foreign.key.may_come_again() {
        findings.push(Finding::warning(
            format!(
                "{table}: its time of creation changes with every UPDATE (ON UPDATE), so it does not tell two rows \
                 apart that had the same number one after the other, as after TRUNCATE"
            ),
            "name in `identity` what does, or take ON UPDATE from the column",
        ));
    }
    findings.extend(foreign.left_alone(connection).await.map_err(failed)?);
    Ok(findings)
}

impl Foreign {
    /// The triggers of the table that are not there.
    pub(super) async fn missing_triggers(
        &self,
        connection: &mut Session,
    ) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for trigger in self.triggers() {
            if !catalogue::has_trigger(connection, &self.database, &self.name, &trigger).await? {
                missing.push(trigger);
            }
        }
        Ok(missing)
    }

    /// Rows whose status the layout does not know.
    async fn left_alone(&self, connection: &mut Session) -> Result<Vec<Finding>, Error> {
        let sql = format!(
            "SELECT status, COUNT(*) FROM (SELECT {} AS status FROM {} AS m) AS said
             WHERE status NOT IN ('PENDING', 'FAILED', 'SENT', 'DEAD') GROUP BY status ORDER BY status",
            self.said("status"),
            self.table.name
        );
        let mut findings = Vec::new();
        for row in fetch(connection, sql).await? {
            let (status, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            findings.push(Finding::warning(
                format!(
                    "{count} rows have the status {status}, which their layout does not know: they are left alone"
                ),
                "name it in state.status of the layout, or correct the rows",
            ));
        }
        Ok(findings)
    }
}
