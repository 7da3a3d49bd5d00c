//! Lists as the JSON arrays that `json_each` reads: one statement for any number of rows.

use super::row::message_id;
use postroom_core::MessageId;
use sqlx::Error;
use sqlx::sqlite::SqliteRow;

/// A list of numbers or texts.
pub(super) fn json<T: Clone + Into<serde_json::Value>>(list: &[T]) -> String {
    serde_json::Value::from(list).to_string()
}

/// A list of ids.
pub(super) fn json_ids<'a>(ids: impl IntoIterator<Item = &'a MessageId>) -> String {
    json(&ids.into_iter().map(MessageId::to_string).collect::<Vec<_>>())
}

/// The ids in the first column of what a statement answered.
pub(super) fn ids(rows: &[SqliteRow]) -> Result<Vec<MessageId>, Error> {
    rows.iter().map(|row| message_id(row, 0)).collect()
}
