//! What a proposal of a layout has to ask SQLite.
//!
//! Types say little there: whether a number is a time, and in which unit, is seen in rows and defaults.

use super::{catalogue, failed};
use crate::layout::{Clock, Column, Dialect, Rows, Table, literals, quoted};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};

const CREATED: &str = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
const DEFAULT: &str = "SELECT coalesce(dflt_value, '') FROM pragma_table_info(?1) WHERE name = ?2";
/// What comes after is no time in seconds: the year 5138.
const SECONDS_MAX: f64 = 1e11;
/// What comes after is no time in milliseconds either.
const MILLIS_MAX: f64 = 1e14;

/// Proposes a layout for the table of this name, as the `[database]` section of a configuration.
///
/// # Errors
/// When there is no such table, its rows cannot be found again, or nothing in it can be a message's content.
pub(in crate::sqlite) async fn propose(
    connection: &mut SqliteConnection,
    name: &str,
) -> StoreResult<String> {
    let refused = |problem: String| Err(StoreError::plain(StoreErrorKind::Refused, problem));
    let Some(found) = catalogue::find(connection, name).await.map_err(failed)? else {
        return refused(format!("there is no table {name} in this file"));
    };
    if found.rowid.is_none() {
        return refused(format!(
            "rows of {name} have no rowid (WITHOUT ROWID): Postroom finds rows by it"
        ));
    }
    let table = found.table;
    let mut asked =
        Asked { connection, table: &table, name: Dialect::Sqlite.plain_name(&table.name) };
    crate::layout::propose(&table, Dialect::Sqlite, &mut asked).await
}

/// A table that is asked.
struct Asked<'a> {
    connection: &'a mut SqliteConnection,
    table: &'a Table,
    /// As the catalogue has it.
    name: String,
}

impl Asked<'_> {
    /// The expression for a column where an INSERT names none.
    async fn default_of(&mut self, column: &Column) -> StoreResult<String> {
        let default = sqlx::query_scalar(DEFAULT).bind(&self.name).bind(&column.name);
        let default: Option<String> =
            default.fetch_optional(&mut *self.connection).await.map_err(failed)?;
        Ok(default.unwrap_or_default())
    }
}

impl Rows for Asked<'_> {
    /// Not asked: what is no JSON is delivered as a JSON text.
    async fn are_json(&mut self, _text: &str) -> StoreResult<bool> {
        Ok(true)
    }

    async fn words(&mut self, column: &Column) -> StoreResult<Vec<String>> {
        let created = sqlx::query_scalar(CREATED).bind(&self.name);
        let created: String = created.fetch_one(&mut *self.connection).await.map_err(failed)?;
        let checks = checks(&created).into_iter().filter(|check| names(check, &column.name));
        let mut found: Vec<String> = checks.flat_map(literals).collect();
        found.extend(literals(&self.default_of(column).await?));
        let column = quoted(&column.name);
        let sample = format!(
            "SELECT DISTINCT CAST({column} AS TEXT) FROM (SELECT {column} FROM {} LIMIT 10000) \
             WHERE typeof({column}) = 'text' LIMIT 20",
            self.table.name
        );
        let sample = sqlx::query_scalar(AssertSqlSafe(sample)).fetch_all(&mut *self.connection);
        found.extend(sample.await.map_err(failed)?);
        Ok(found)
    }

    async fn clock(&mut self, column: &Column) -> StoreResult<Option<Clock>> {
        let kind = column.kind.to_ascii_uppercase();
        if ["BOOL", "BLOB", "JSON"].iter().any(|other| kind.contains(other)) {
            return Ok(None);
        }
        let name = quoted(&column.name);
        let sample = format!(
            "SELECT typeof({name}), CAST(max({name}) AS REAL), instr(max({name}), 'T') > 0, \
                    julianday(max({name})) IS NOT NULL \
             FROM (SELECT {name} FROM {} WHERE {name} IS NOT NULL LIMIT 100)",
            self.table.name
        );
        let sample = sqlx::query(AssertSqlSafe(sample)).fetch_one(&mut *self.connection);
        let sample = sample.await.map_err(failed)?;
        let largest = sample.try_get::<Option<f64>, _>(1).map_err(failed)?.unwrap_or_default();
        let is = |index| sample.try_get::<Option<bool>, _>(index).map_err(failed);
        let (has_t, is_time) = (is(2)?, is(3)?);
        Ok(match sample.try_get::<&str, _>(0).map_err(failed)? {
            "null" => self.empty_clock(column, &kind).await?,
            // Yes and no.
            "integer" | "real" if largest <= 1.0 => None,
            "integer" | "real" if largest < SECONDS_MAX => Some(Clock::Seconds),
            "integer" | "real" if largest < MILLIS_MAX => Some(Clock::Millis { is_guess: false }),
            "text" if is_time != Some(true) => None,
            "text" if has_t == Some(true) => Some(Clock::Own),
            "text" => Some(Clock::WithoutZone),
            _ => None,
        })
    }
}

impl Asked<'_> {
    /// How a column that no row has a value in would hold times, as its type and its default say.
    async fn empty_clock(&mut self, column: &Column, kind: &str) -> StoreResult<Option<Clock>> {
        let default = self.default_of(column).await?.to_ascii_lowercase();
        if kind.contains("INT") || kind.contains("NUM") {
            return Ok(match default.as_str() {
                "" => Some(Clock::Millis { is_guess: true }),
                _ if default.contains("1000") => Some(Clock::Millis { is_guess: false }),
                _ if default.contains("unixepoch(") || default.contains("'%s'") => {
                    Some(Clock::Seconds)
                }
                _ => None,
            });
        }
        let has_format = default.contains("strftime(");
        let is_spaced = default.contains("current_timestamp") || default.contains("datetime(");
        let is_time = kind.contains("TIME") || kind.contains("DATE");
        Ok(Some(match is_spaced || (is_time && !has_format) {
            true => Clock::WithoutZone,
            false => Clock::Own,
        }))
    }
}

/// What stands in the parentheses of each CHECK of a table.
fn checks(created: &str) -> Vec<&str> {
    let upper = created.to_ascii_uppercase();
    let begins = upper.match_indices("CHECK").map(|(at, word)| at + word.len());
    begins.filter_map(|at| in_parentheses(&created[at..])).collect()
}

/// What stands in the parentheses that a text begins with, after space. Those in quoted text are passed over.
fn in_parentheses(text: &str) -> Option<&str> {
    let text = text.trim_start().strip_prefix('(')?;
    let (mut depth, mut is_quoted) = (1, false);
    for (at, c) in text.char_indices() {
        match c {
            '\'' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[..at]);
        }
    }
    None
}

/// Whether an expression has this column in it.
fn names(expression: &str, column: &str) -> bool {
    let mut words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.any(|word| word.eq_ignore_ascii_case(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_found_by_the_column_that_they_are_about() {
        let created = "CREATE TABLE t (kind TEXT check(kind IN ('new)', 'x')), \
                       CONSTRAINT c CHECK (\"status\" IN ('pending', 'sent')))";
        let of = |column: &str| {
            let found = checks(created).into_iter().filter(|check| names(check, column));
            found.flat_map(literals).collect::<Vec<_>>()
        };
        assert_eq!(of("status"), ["pending", "sent"]);
        assert_eq!(of("kind"), ["new)", "x"]);
    }
}
