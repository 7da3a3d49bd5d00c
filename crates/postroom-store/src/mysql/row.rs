//! From a row to a message.

use crate::content_fault::{Found, drop_null_headers, fault, impossible_value};
use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{Dispatched, Message, MessageId, RawJson, Record, Status, Take, Taken};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row as _};
use uuid::Uuid;

/// Reads the columns of `MESSAGE`.
fn message(row: &MySqlRow) -> Result<Message, Error> {
    let payload: Option<String> = row.try_get(6)?;
    Ok(Message {
        seq: row.try_get(0)?,
        id: message_id(row, 1)?,
        event_id: row.try_get(2)?,
        stream_id: row.try_get(3)?,
        integration: row.try_get(4)?,
        event_type: row.try_get(5)?,
        payload: payload.map_or_else(|| RawJson::trusted("null"), RawJson::trusted),
        headers: row.try_get::<Option<String>, _>(7)?.map(RawJson::trusted),
        tenant_id: row.try_get(8)?,
        user_id: row.try_get(9)?,
        correlation_id: row.try_get(10)?,
        causation_id: row.try_get(11)?,
        source: row.try_get(12)?,
        ordering_key: row.try_get(13)?,
        schema_version: row.try_get(14)?,
        copy: row.try_get(15)?,
        occurred_at: optional_time(row, 16)?,
        due_at: time(row, 17)?,
        attempts: row.try_get::<i32, _>(18)?.unsigned_abs(),
        max_attempts: row.try_get::<i32, _>(19)?.unsigned_abs(),
        created_at: time(row, 20)?,
    })
}

/// Reads what a take has selected. Content that was left out was over its limit.
pub(super) fn taken(
    row: &MySqlRow,
    rescues: u32,
    dispatch: u32,
    take: &Take<'_>,
) -> Result<Taken, Error> {
    let (message, fault) = match message(row) {
        Ok(mut message) => {
            let has_payload = row.try_get::<Option<&str>, _>(6)?.is_some();
            let found = Found { has_payload, has_headers: row.try_get(21)? };
            let fault = fault(&message, &found, take);
            drop_null_headers(&mut message);
            (message, fault)
        }
        Err(_) => (identity(row)?, Some(impossible_value())),
    };
    Ok(Taken { message, rescues, dispatch, fault })
}

/// Reads a message's id. A uuid may be written in any case.
pub(super) fn message_id(row: &MySqlRow, index: usize) -> Result<MessageId, Error> {
    const HYPHENATED: usize = 36;
    let text: &str = row.try_get(index)?;
    Ok(match Uuid::parse_str(text) {
        Ok(uuid) if text.len() == HYPHENATED => uuid.into(),
        Ok(_) | Err(_) => MessageId::trusted(text),
    })
}

/// Reads what a message needs to be settled.
fn identity(row: &MySqlRow) -> Result<Message, Error> {
    let id = message_id(row, 1)?;
    Ok(Message::unread(row.try_get(0)?, id, row.try_get(4)?))
}

/// Reads the columns of `DISPATCHED`.
pub(super) fn dispatched(row: &MySqlRow) -> Result<Dispatched, Error> {
    let mut message = message(row)?;
    drop_null_headers(&mut message);
    Ok(Dispatched {
        message,
        number: number(row, 21)?,
        // The statement selects no other.
        status: Status::parse(row.try_get(22)?).unwrap_or(Status::Pending),
        last_error: row.try_get(23)?,
    })
}

/// Reads the number of a delivery's dispatch, from how many are over.
pub(super) fn number(row: &MySqlRow, index: usize) -> Result<u32, Error> {
    Ok(row.try_get::<i32, _>(index)?.unsigned_abs().saturating_add(1))
}

/// Reads the columns of `RECORD`.
pub(super) fn record(row: &MySqlRow) -> Result<Record, Error> {
    Ok(Record {
        message: message(row)?,
        status: row.try_get(21)?,
        locked_at: optional_time(row, 22)?,
        locked_by: row.try_get(23)?,
        updated_at: time(row, 24)?,
        sent_at: optional_time(row, 25)?,
        last_error: row.try_get(26)?,
    })
}

pub(super) fn time(row: &MySqlRow, index: usize) -> Result<DateTime<Utc>, Error> {
    row.try_get::<NaiveDateTime, _>(index).map(|at| at.and_utc())
}

fn optional_time(row: &MySqlRow, index: usize) -> Result<Option<DateTime<Utc>>, Error> {
    Ok(row.try_get::<Option<NaiveDateTime>, _>(index)?.map(|at| at.and_utc()))
}

/// Reads a count, which is never negative.
pub(super) fn count(row: &MySqlRow, index: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(index)?).unwrap_or(0))
}
