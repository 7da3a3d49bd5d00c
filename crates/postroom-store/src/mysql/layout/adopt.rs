//! What a proposal of a layout has to ask MariaDB and MySQL.

use super::{catalogue, failed, quoted_text};
use crate::layout::{Clock, Column, Dialect, Rows, Table, backticked, literals};
use crate::mysql::fetch;
use crate::mysql::session::Session;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::Row as _;

/// What comes after is no time in seconds: the year 5138.
const SECONDS_MAX: f64 = 1e11;
/// What comes after is no time in milliseconds either.
const MILLIS_MAX: f64 = 1e14;

/// Proposes a layout for the table of this name, as the `[database]` section of a configuration.
///
/// # Errors
/// When there is no such table, its rows cannot be found again, or nothing in it can be a message's content.
pub(in crate::mysql) async fn propose(
    connection: &mut Session,
    name: &str,
    database: &str,
) -> StoreResult<String> {
    let found = catalogue::find(connection, name, database).await.map_err(failed)?;
    let Some(found) = found else {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!("there is no table {name} in this database, or the user may not see it"),
        ));
    };
    let mut asked = Asked {
        connection,
        table: &found.table,
        place: format!(
            "TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            quoted_text(&found.database),
            quoted_text(&found.name)
        ),
    };
    // Named by itself where that is enough.
    let is_elsewhere = found.database != database;
    let name = if is_elsewhere { found.table.name.clone() } else { backticked(&found.name) };
    let named = Table { name, ..found.table.clone() };
    crate::layout::propose(&named, Dialect::Mysql, &mut asked).await
}

/// A table that is asked.
struct Asked<'a> {
    connection: &'a mut Session,
    table: &'a Table,
    /// A condition on rows of the catalogue.
    place: String,
}

impl Asked<'_> {
    async fn texts(&mut self, sql: String) -> StoreResult<Vec<String>> {
        let rows = fetch(self.connection, sql).await.map_err(failed)?;
        let texts = rows.iter().map(|row| row.try_get::<Option<String>, _>(0).map_err(failed));
        Ok(texts.collect::<StoreResult<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

impl Rows for Asked<'_> {
    /// Not asked: what is no JSON is delivered as a JSON text.
    async fn are_json(&mut self, _text: &str) -> StoreResult<bool> {
        Ok(true)
    }

    /// Constraints are not asked: MySQL shows them since 8.0.16, and those of a schema all together.
    async fn words(&mut self, column: &Column) -> StoreResult<Vec<String>> {
        let name = quoted_text(&column.name);
        // MariaDB quotes a default, MySQL does not.
        let declared = format!(
            "SELECT CONVERT(CONCAT(COLUMN_TYPE, ' ', QUOTE(TRIM(BOTH '''' FROM COLUMN_DEFAULT))) USING utf8mb4) \
             FROM information_schema.COLUMNS WHERE {0} AND COLUMN_NAME = {name} AND COLUMN_DEFAULT IS NOT NULL \
             UNION ALL SELECT CONVERT(COLUMN_TYPE USING utf8mb4) \
             FROM information_schema.COLUMNS WHERE {0} AND COLUMN_NAME = {name} AND COLUMN_DEFAULT IS NULL",
            self.place
        );
        let declared = self.texts(declared).await?;
        let mut found: Vec<String> = declared.iter().flat_map(|text| literals(text)).collect();
        let column = backticked(&column.name);
        let sample = format!(
            "SELECT DISTINCT CONVERT({column} USING utf8mb4) FROM (SELECT {column} FROM {} LIMIT 10000) AS s \
             WHERE CHAR_LENGTH({column}) <= 40 LIMIT 20",
            self.table.name
        );
        found.extend(self.texts(sample).await?);
        Ok(found)
    }

    async fn clock(&mut self, column: &Column) -> StoreResult<Option<Clock>> {
        let kind = column.kind.to_ascii_lowercase();
        if matches!(kind.as_str(), "datetime" | "timestamp") {
            return Ok(Some(Clock::Own));
        }
        let is_number = matches!(kind.as_str(), "bigint" | "int" | "decimal" | "double");
        let is_text = kind.ends_with("char");
        if !is_number && !is_text {
            return Ok(None);
        }
        let name = backticked(&column.name);
        let sample = format!(
            "SELECT CONVERT(MAX({name}) USING utf8mb4) \
             FROM (SELECT {name} FROM {} WHERE {name} IS NOT NULL LIMIT 100) AS s",
            self.table.name
        );
        Ok(match self.texts(sample).await?.into_iter().next() {
            None if kind == "bigint" => Some(Clock::Millis { is_guess: true }),
            None => None,
            Some(text) if is_text => looks_like_a_time(&text).then_some(Clock::WithoutZone),
            Some(number) => match number.parse::<f64>().unwrap_or_default() {
                // Yes and no.
                number if number <= 1.0 => None,
                number if number < SECONDS_MAX => Some(Clock::Seconds),
                number if number < MILLIS_MAX => Some(Clock::Millis { is_guess: false }),
                _ => None,
            },
        })
    }
}

/// Whether a text begins as times do.
fn looks_like_a_time(text: &str) -> bool {
    const SHAPE: &str = "dddd-dd-dd";
    text.len() >= SHAPE.len()
        && text.bytes().zip(SHAPE.bytes()).all(|(byte, place)| match place {
            b'd' => byte.is_ascii_digit(),
            place => byte == place,
        })
}
