//! Lists as the JSON arrays that `json_each` reads: one statement for any number of rows.

use super::row::uuid;
use sqlx::Error;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

/// A list of numbers or texts.
pub(super) fn json<T: Clone + Into<serde_json::Value>>(list: &[T]) -> String {
    serde_json::Value::from(list).to_string()
}

/// A list of ids.
pub(super) fn json_ids(ids: &[Uuid]) -> String {
    json(&ids.iter().map(Uuid::to_string).collect::<Vec<_>>())
}

/// The ids in the first column of what a statement answered.
pub(super) fn ids(rows: &[SqliteRow]) -> Result<Vec<Uuid>, Error> {
    rows.iter().map(|row| uuid(row, 0)).collect()
}
