//! Rows as messages.

use super::growth::text_within;
use super::ids::{Id, id};
use crate::content_fault::{Found, drop_null_headers, fault};
use chrono::{DateTime, Utc};
use postroom_core::{Dispatched, Message, MessageId, RawJson, Record, Status, Take, Taken};
use tokio_postgres::{Error, Row};

/// Places among the columns of a message.
const PAYLOAD: usize = 5;
const HEADERS: usize = 6;

/// The message columns in the order every statement selects them, beginning at `first`.
pub(super) fn message(row: &Row, seq: i64, first: usize) -> Result<Message, Error> {
    message_of(row, seq, first, [row.try_get(first + PAYLOAD)?, row.try_get(first + HEADERS)?])
}

/// The same with the text of payload and headers, which the row may hold more of than is wanted.
fn message_of(
    row: &Row,
    seq: i64,
    first: usize,
    [payload, headers]: [Option<&str>; 2],
) -> Result<Message, Error> {
    Ok(Message {
        id: id(row, first)?,
        seq,
        event_id: row.try_get(first + 1)?,
        stream_id: row.try_get(first + 2)?,
        integration: row.try_get(first + 3)?,
        event_type: row.try_get(first + 4)?,
        payload: RawJson::trusted(payload.unwrap_or("null")),
        headers: headers.map(RawJson::trusted),
        tenant_id: row.try_get(first + 7)?,
        user_id: row.try_get(first + 8)?,
        correlation_id: row.try_get(first + 9)?,
        causation_id: row.try_get(first + 10)?,
        source: row.try_get(first + 11)?,
        ordering_key: row.try_get(first + 12)?,
        schema_version: row.try_get(first + 13)?,
        copy: row.try_get(first + 14)?,
        occurred_at: row.try_get(first + 15)?,
        due_at: row.try_get(first + 16)?,
        attempts: counter(row, first + 17)?,
        max_attempts: counter(row, first + 18)?,
        created_at: row.try_get(first + 19)?,
    })
}

/// A count that a CHECK keeps from being negative.
fn counter(row: &Row, index: usize) -> Result<u32, Error> {
    Ok(u32::try_from(row.try_get::<_, i32>(index)?).unwrap_or(0))
}

/// One row of `content.sql`, or of `fresh.sql` and `fresh_of.sql`.
pub(super) enum TakenRow {
    /// A message, with the due time of its delivery or its own.
    Message(Box<Taken>, DateTime<Utc>),
    /// The id of a message that is gone, or was closed by hand.
    Orphan(MessageId),
    /// The id of a message that its parcel names by mistake: it has a delivery, is due later, or goes to
    /// another integration by now.
    Elsewhere(MessageId),
}

impl TakenRow {
    pub(super) fn id(&self) -> &MessageId {
        match self {
            Self::Message(taken, _) => &taken.message.id,
            Self::Orphan(id) | Self::Elsewhere(id) => id,
        }
    }
}

/// Where the columns of `fresh_of.sql` that are no message's begin.
const AFTER_MESSAGE: usize = 20;

/// Whether such a row was read without all of its content.
pub(super) fn lacks_content(row: &Row) -> Result<bool, Error> {
    let lacks = |index| row.try_get(index).map(|text: Option<&str>| text.is_none());
    Ok(lacks(PAYLOAD)? || (row.try_get(AFTER_MESSAGE + 1)? && lacks(HEADERS)?))
}

/// One such row.
pub(super) fn fresh(row: &Row, take: &Take<'_>) -> Result<TakenRow, Error> {
    if row.try_get(AFTER_MESSAGE + 2)? {
        return Ok(TakenRow::Elsewhere(id(row, 0)?));
    }
    let within = |index, limit| {
        let text: Option<&str> = row.try_get(index)?;
        Ok(text.filter(|text| text.len() <= limit))
    };
    let payload = within(PAYLOAD, take.payload_limit)?;
    let headers = within(HEADERS, take.headers_limit())?;
    let mut message = message_of(row, row.try_get(AFTER_MESSAGE)?, 0, [payload, headers])?;
    let has_headers = row.try_get(AFTER_MESSAGE + 1)?;
    let found = Found { has_payload: payload.is_some(), has_headers };
    let fault = fault(&message, &found, take);
    drop_null_headers(&mut message);
    let due_at = message.due_at;
    let taken = Taken { message, rescues: 0, dispatch: 1, fault };
    Ok(TakenRow::Message(Box::new(taken), due_at))
}

pub(super) fn taken(row: &Row, take: &Take<'_>) -> Result<TakenRow, Error> {
    const FIRST: usize = 3;
    if row.try_get::<_, Option<Id>>(FIRST)?.is_none() {
        return Ok(TakenRow::Orphan(id(row, 0)?));
    }
    if row.try_get(FIRST + 24)? {
        return Ok(TakenRow::Elsewhere(id(row, 0)?));
    }
    let mut message = message(row, row.try_get(FIRST + 23)?, FIRST)?;
    let found = Found {
        has_payload: row.try_get::<_, Option<&str>>(FIRST + 5)?.is_some(),
        has_headers: row.try_get(FIRST + 22)?,
    };
    let fault = fault(&message, &found, take);
    drop_null_headers(&mut message);
    let (rescues, dispatch) = (counter(row, 1)?, number(row, FIRST + 21)?);
    let taken = Taken { message, rescues, dispatch, fault };
    Ok(TakenRow::Message(Box::new(taken), row.try_get(2)?))
}

/// One row of `dispatched.sql`.
pub(super) fn dispatched(row: &Row) -> Result<Dispatched, Error> {
    let mut message = message(row, row.try_get(0)?, 2)?;
    drop_null_headers(&mut message);
    Ok(Dispatched {
        message,
        number: number(row, 1)?,
        // The statement selects no other.
        status: Status::parse(row.try_get(22)?).unwrap_or(Status::Pending),
        last_error: row.try_get(23)?,
    })
}

/// The number of a delivery's dispatch, from how many are over.
fn number(row: &Row, index: usize) -> Result<u32, Error> {
    Ok(counter(row, index)?.saturating_add(1))
}

/// What [`record`] reads, in order.
macro_rules! record_columns {
    ($payload:expr, $headers:expr) => {
        concat!(
            "seq, id, source_event_id, source_stream_id, integration_type, event_type, ",
            $payload,
            ", ",
            $headers,
            ", tenant_id, user_id, correlation_id, causation_id, source, ordering_key, \
             schema_version, copy, occurred_at, due_at, attempts, max_attempts, created_at, \
             status, locked_at, locked_by, updated_at, sent_at, last_error"
        )
    };
}

/// Content that would be over 16 MB because of its numbers is not shown: whoever looks for the
/// message that was too large must be able to see the others.
pub(super) const RECORD_COLUMNS: &str = record_columns!(
    text_within!("payload", "1600000", "'\"too large to be shown\"'"),
    text_within!("headers", "1600000", "'{}'")
);

/// The same without content.
pub(super) const STATE_COLUMNS: &str = record_columns!("NULL::text", "NULL::text");

pub(super) fn record(row: &Row) -> Result<Record, Error> {
    Ok(Record {
        message: message(row, row.try_get(0)?, 1)?,
        status: row.try_get(21)?,
        locked_at: row.try_get(22)?,
        locked_by: row.try_get(23)?,
        updated_at: row.try_get(24)?,
        sent_at: row.try_get(25)?,
        last_error: row.try_get(26)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_without_content() {
        assert!(RECORD_COLUMNS.contains("payload") && RECORD_COLUMNS.contains("headers"));
        assert!(!STATE_COLUMNS.contains("payload") && !STATE_COLUMNS.contains("headers"));
    }
}
