//! From a row to a message.

use super::time::moment;
use crate::content_fault::{Found, drop_null_headers, fault, impossible_value};
use chrono::{DateTime, Utc};
use postroom_core::{
    ContentFault, Dispatched, Message, MessageId, RawJson, Record, Status, Take, Taken, Token,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use uuid::Uuid;

/// Where content stands.
const PAYLOAD: usize = 19;
const HEADERS: usize = 20;

/// Reads the columns of `sql/message_columns.sql`, and the content that follows them.
fn message(row: &SqliteRow) -> Result<Message, Error> {
    let payload = optional_text(row, PAYLOAD)?;
    Ok(Message {
        seq: row.try_get(0)?,
        id: message_id(row, 1)?,
        event_id: text(row, 2)?,
        stream_id: text(row, 3)?,
        integration: text(row, 4)?,
        event_type: text(row, 5)?,
        tenant_id: optional_text(row, 6)?,
        user_id: optional_text(row, 7)?,
        correlation_id: optional_text(row, 8)?,
        causation_id: optional_text(row, 9)?,
        source: optional_text(row, 10)?,
        ordering_key: optional_text(row, 11)?,
        schema_version: row.try_get(12)?,
        copy: row.try_get(13)?,
        occurred_at: optional_time(row, 14)?,
        due_at: time(row, 15)?,
        attempts: row.try_get(16)?,
        max_attempts: row.try_get(17)?,
        created_at: time(row, 18)?,
        payload: payload.map_or_else(|| RawJson::trusted("null"), RawJson::trusted),
        headers: optional_text(row, HEADERS)?.map(RawJson::trusted),
    })
}

/// Reads what a take has selected. Content that was left out was over its limit.
pub(super) fn taken(
    row: &SqliteRow,
    rescues: u32,
    dispatch: u32,
    take: &Take<'_>,
) -> Result<Taken, Error> {
    let (message, fault) = match message(row) {
        Ok(mut message) => {
            let has_payload = optional_text(row, PAYLOAD)?.is_some();
            let found = Found { has_payload, has_headers: row.try_get(21)? };
            let fault = fault(&message, &found, take).or(garbled(row)?);
            drop_null_headers(&mut message);
            (message, fault)
        }
        Err(_) => (identity(row)?, Some(impossible_value())),
    };
    Ok(Taken { message, rescues, dispatch, fault })
}

/// The fault of content that is not UTF-8.
fn garbled(row: &SqliteRow) -> Result<Option<ContentFault>, Error> {
    let is_whole = is_utf8(row, PAYLOAD)? && is_utf8(row, HEADERS)?;
    let reason = || "payload or headers are not UTF-8".to_owned();
    Ok((!is_whole).then(|| ContentFault::Unreadable { reason: reason() }))
}

/// Whether text, if there is any, came through whole: see [`text`].
fn is_utf8(row: &SqliteRow, index: usize) -> Result<bool, Error> {
    let bytes: Option<&[u8]> = row.try_get_unchecked(index)?;
    Ok(bytes.is_none_or(|bytes| std::str::from_utf8(bytes).is_ok()))
}

/// Reads what a message needs to be settled.
fn identity(row: &SqliteRow) -> Result<Message, Error> {
    Ok(Message::unread(row.try_get(0)?, message_id(row, 1)?, text(row, 4)?))
}

/// Reads the columns of `sql/dispatched.sql`.
pub(super) fn dispatched(row: &SqliteRow) -> Result<Dispatched, Error> {
    let mut message = message(row)?;
    drop_null_headers(&mut message);
    Ok(Dispatched {
        message,
        number: number(row, 21)?,
        // The statement selects no other.
        status: Status::parse(&text(row, 22)?).unwrap_or(Status::Pending),
        last_error: optional_text(row, 23)?,
    })
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

/// An id as the ledger's readers know it: a uuid in lower case, and any other text as it is.
pub(super) fn id(mut text: String) -> String {
    let is_hyphen = |place| matches!(place, 8 | 13 | 18 | 23);
    let mut bytes = text.bytes().enumerate();
    let is_uuid = text.len() == 36
        && bytes.all(
            |(place, byte)| {
                if is_hyphen(place) { byte == b'-' } else { byte.is_ascii_hexdigit() }
            },
        );
    if is_uuid {
        text.make_ascii_lowercase();
    }
    text
}

/// Reads a message's id.
pub(super) fn message_id(row: &SqliteRow, index: usize) -> Result<MessageId, Error> {
    Ok(MessageId::trusted(&id(text(row, index)?)))
}

fn uuid(row: &SqliteRow, index: usize) -> Result<Uuid, Error> {
    Uuid::parse_str(&text(row, index)?)
        .map_err(|error| Error::ColumnDecode { index: index.to_string(), source: error.into() })
}

fn time(row: &SqliteRow, index: usize) -> Result<DateTime<Utc>, Error> {
    row.try_get(index).map(moment)
}

fn optional_time(row: &SqliteRow, index: usize) -> Result<Option<DateTime<Utc>>, Error> {
    Ok(row.try_get::<Option<i64>, _>(index)?.map(moment))
}
