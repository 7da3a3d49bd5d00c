//! Changing a stream's metadata and leaving alone what others have put there.

use crate::event::{METADATA_TYPE, NewEvent};
use crate::eventlog::{Direction, EventLog, StreamState};
use crate::expected::{AppendError, ExpectedRevision, ReadError};
use serde_json::{Map, Value};

/// Why a group's state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// It was read, and is not what a group has written.
    #[error("the last event of {0} is not what the server writes there")]
    Malformed(String),
}

/// Hides the events of a stream before this revision.
pub(super) async fn truncate(log: &EventLog, stream: &str, before: u64) -> Result<(), StateError> {
    let mut metadata = read(log, stream).await?;
    metadata.insert("$tb".to_owned(), before.into());
    write(log, stream, metadata).await
}

/// Has the log keep this many events of a stream.
pub(super) async fn keep(log: &EventLog, stream: &str, events: u64) -> Result<(), StateError> {
    let mut metadata = read(log, stream).await?;
    let events = Value::from(events);
    if metadata.insert("$maxCount".to_owned(), events.clone()) == Some(events) {
        return Ok(());
    }
    write(log, stream, metadata).await
}

/// Hides all events of a stream.
pub(super) async fn empty(log: &EventLog, stream: &str) -> Result<(), StateError> {
    match log.stream_state(stream).await? {
        StreamState::There { first, last } if first <= last => {
            truncate(log, stream, last + 1).await
        }
        StreamState::There { .. } | StreamState::Missing | StreamState::Tombstoned => Ok(()),
    }
}

/// Fails where a stream is tombstoned, and so takes no events any more.
pub(super) async fn writable(log: &EventLog, stream: &str) -> Result<(), StateError> {
    match log.stream_state(stream).await? {
        StreamState::There { .. } | StreamState::Missing => Ok(()),
        StreamState::Tombstoned => Err(AppendError::StreamDeleted.into()),
    }
}

async fn read(log: &EventLog, stream: &str) -> Result<Map<String, Value>, ReadError> {
    let stream = format!("$${stream}");
    let page = log.read_stream(&stream, u64::MAX, Direction::Backwards, 1, false).await?;
    let event = page.events.into_iter().next().and_then(|event| event.event);
    // What is not an object is no metadata, and nothing of it is lost.
    Ok(event.and_then(|event| serde_json::from_slice(&event.data()).ok()).unwrap_or_default())
}

async fn write(
    log: &EventLog,
    stream: &str,
    metadata: Map<String, Value>,
) -> Result<(), StateError> {
    let data = Value::Object(metadata).to_string();
    let event = NewEvent::json(METADATA_TYPE, data);
    log.append(&format!("$${stream}"), ExpectedRevision::Any, vec![event]).await?;
    Ok(())
}
