//! A group's checkpoint: where it goes on after a restart.

use super::group_id::GroupId;
use super::source::Source;
use super::stream_metadata::{self, StateError};
use crate::event::NewEvent;
use crate::eventlog::{Direction, EventLog};
use crate::expected::ExpectedRevision;

const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
const KEPT_CHECKPOINTS: u64 = 2;

/// Makes the stream ready for a new group: earlier checkpoints are hidden.
pub(super) async fn prepare(log: &EventLog, id: &GroupId) -> Result<(), StateError> {
    let stream = id.checkpoint_stream();
    stream_metadata::empty(log, &stream).await?;
    stream_metadata::keep(log, &stream, KEPT_CHECKPOINTS).await
}

/// The revision or position that was written last.
pub(super) async fn load(
    log: &EventLog,
    id: &GroupId,
    source: &Source,
) -> Result<Option<u64>, StateError> {
    let stream = id.checkpoint_stream();
    let page = log.read_stream(&stream, u64::MAX, Direction::Backwards, 1, false).await?;
    let Some(event) = page.events.into_iter().next().and_then(|event| event.event) else {
        return Ok(None);
    };
    let text: Option<String> = serde_json::from_slice(&event.data()).ok();
    let place = text.and_then(|text| source.parse(&text));
    place.map(Some).ok_or(StateError::Malformed(stream))
}

/// Writes it.
pub(super) async fn store(
    log: &EventLog,
    id: &GroupId,
    source: &Source,
    place: u64,
) -> Result<(), StateError> {
    let event = NewEvent::json(CHECKPOINT_TYPE, format!("\"{}\"", source.print(place)));
    log.append(&id.checkpoint_stream(), ExpectedRevision::Any, vec![event]).await?;
    Ok(())
}
