//! From a row to a message.

use super::time::moment;
use chrono::{DateTime, Utc};
use postroom_core::{ContentFault, Dispatched, Message, RawJson, Record, Taken, Token};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use uuid::Uuid;

/// Reads the columns of `message_columns!`.
fn message(row: &SqliteRow) -> Result<Message, Error> {
    Ok(Message {
        seq: row.try_get(0)?,
        id: uuid(row, 1)?,
        event_id: text(row, 2)?,
        stream_id: text(row, 3)?,
        integration: text(row, 4)?,
        event_type: text(row, 5)?,
        payload: optional_text(row, 6)?.map_or_else(|| RawJson::trusted("null"), RawJson::trusted),
        headers: optional_text(row, 7)?.map(RawJson::trusted),
        tenant_id: optional_text(row, 8)?,
        user_id: optional_text(row, 9)?,
        correlation_id: optional_text(row, 10)?,
        causation_id: optional_text(row, 11)?,
        source: optional_text(row, 12)?,
        ordering_key: optional_text(row, 13)?,
        schema_version: row.try_get(14)?,
        copy: row.try_get(15)?,
        occurred_at: optional_time(row, 16)?,
        due_at: time(row, 17)?,
        attempts: row.try_get(18)?,
        max_attempts: row.try_get(19)?,
        created_at: time(row, 20)?,
    })
}

/// Reads what a take has selected. A payload that was left out was over the limit.
pub(super) fn taken(
    row: &SqliteRow,
    rescues: u32,
    dispatch: u32,
    payload_limit: usize,
) -> Result<Taken, Error> {
    let message = message(row)?;
    let fault = if optional_text(row, 6)?.is_none() {
        Some(ContentFault::TooLarge { limit: payload_limit })
    } else if message.headers.as_ref().is_some_and(|headers| !headers.is_object()) {
        Some(ContentFault::HeadersNoObject)
    } else {
        None
    };
    Ok(Taken { message, rescues, dispatch, fault })
}

/// Reads the columns of `DISPATCHED`.
pub(super) fn dispatched(row: &SqliteRow) -> Result<Dispatched, Error> {
    Ok(Dispatched { message: message(row)?, number: number(row, 21)? })
}

/// Reads the number of a delivery's dispatch, from how many are over.
pub(super) fn number(row: &SqliteRow, index: usize) -> Result<u32, Error> {
    Ok(row.try_get::<u32, _>(index)?.saturating_add(1))
}

/// Reads the columns of `record_columns!`.
pub(super) fn record(row: &SqliteRow) -> Result<Record, Error> {
    Ok(Record {
        message: message(row)?,
        status: text(row, 21)?,
        locked_at: optional_time(row, 22)?,
        locked_by: optional_text(row, 23)?,
        updated_at: time(row, 24)?,
        sent_at: optional_time(row, 25)?,
        last_error: optional_text(row, 26)?,
    })
}

/// Reads a token.
pub(super) fn token(row: &SqliteRow, index: usize) -> Result<Token, Error> {
    uuid(row, index).map(Token)
}

/// Reads text. SQLite keeps whatever bytes a producer wrote; one that is no UTF-8 must not stop
/// its lane, so it is read with replacement characters.
pub(super) fn text(row: &SqliteRow, index: usize) -> Result<String, Error> {
    let bytes: &[u8] = row.try_get_unchecked(index)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// Reads text that may be missing.
pub(super) fn optional_text(row: &SqliteRow, index: usize) -> Result<Option<String>, Error> {
    let bytes: Option<&[u8]> = row.try_get_unchecked(index)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// Reads an id.
pub(super) fn uuid(row: &SqliteRow, index: usize) -> Result<Uuid, Error> {
    Uuid::parse_str(&text(row, index)?)
        .map_err(|error| Error::ColumnDecode { index: index.to_string(), source: error.into() })
}

fn time(row: &SqliteRow, index: usize) -> Result<DateTime<Utc>, Error> {
    row.try_get(index).map(moment)
}

fn optional_time(row: &SqliteRow, index: usize) -> Result<Option<DateTime<Utc>>, Error> {
    Ok(row.try_get::<Option<i64>, _>(index)?.map(moment))
}
