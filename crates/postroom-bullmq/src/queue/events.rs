//! What happened to a queue's jobs, read from its event stream.

use super::Queue;
use super::states::DROPPED_STORED;
use super::streams::{Reading, Received, Streams};
use crate::error::QueueError;
use postroom_core::clip_error;
use redis::streams::StreamId;
use std::sync::Arc;

/// A place in a queue's event stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position(At);

#[derive(Clone, Debug, Eq, PartialEq)]
enum At {
    Start,
    End,
    After(String),
}

impl Position {
    /// Before the oldest event that Redis still has.
    pub const START: Self = Self(At::Start);
    /// After the newest: only what happens from now on.
    pub const END: Self = Self(At::End);

    pub(super) fn after(id: String) -> Self {
        Self(At::After(id))
    }

    /// Where Redis is to read on; `None` at the end, wherever that is.
    pub(super) fn start(&self) -> Option<&str> {
        match &self.0 {
            At::Start => Some("0-0"),
            At::End => None,
            At::After(id) => Some(id),
        }
    }

    /// The id of the event it is behind.
    pub(super) fn id(&self) -> Option<&str> {
        match &self.0 {
            At::Start | At::End => None,
            At::After(id) => Some(id),
        }
    }
}

/// Something that happened to a job, or to the whole queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Behind this event: from here the next one follows.
    pub position: Position,
    /// The job, where it is about one.
    pub job_id: Option<String>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// The job was added.
    Added,
    /// It waits for a worker.
    Waiting,
    /// A worker runs it.
    Active,
    /// It ended with success.
    Completed,
    /// It ended without being run: see [`crate::JobFailure::Dropped`].
    Dropped,
    /// It failed for good.
    Failed {
        /// What its worker said, clipped.
        reason: String,
    },
    /// Its worker lost it, and it waits again.
    Stalled,
    /// A job of its id was there already.
    Duplicated,
    /// It was removed.
    Removed,
    /// Something else, by BullMQ's name for it.
    Other(String),
}

/// The events of a queue, in their order, one after the other.
///
/// Redis keeps about the last 10,000: a reader that falls behind further misses some, and has to
/// look at the jobs themselves.
#[derive(Debug)]
pub struct Events {
    received: Received,
    /// It is read for as long as this is there.
    _reading: Reading,
}

impl Queue {
    /// What happens to this queue's jobs, from a position on. All queues of a [`crate::Redis`] are
    /// listened to over one connection. Needs a Tokio runtime.
    #[must_use]
    pub fn events(&self, from: Position) -> Events {
        let (key, redis) = (self.keys.of("events"), &self.redis);
        let mut streams = Arc::clone(&redis.streams);
        let mut is_alone = redis.server.is_cluster && !self.keys.share_a_slot_with_others();
        loop {
            let read = (!is_alone).then(|| streams.read(&key, from.clone())).flatten();
            if let Some((reading, received)) = read {
                return Events { received, _reading: reading };
            }
            // Over a connection of its own: a second reader of the same stream, or one that a cluster
            // may keep elsewhere.
            is_alone = false;
            streams = Arc::new(Streams::new(Arc::clone(&redis.server), Arc::clone(&redis.link)));
        }
    }
}

impl Events {
    /// The next event, once there is one. After an error it goes on where it was: Redis is tried
    /// again by itself. May be cancelled without missing anything.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn next(&mut self) -> Result<Event, QueueError> {
        match self.received.recv().await {
            Some(next) => next,
            // Only a defect of ours ends the reader before us. Then so do we, since nobody would hear
            // anything any more.
            None => std::panic::resume_unwind(Box::new("reading events panicked; see the log")),
        }
    }
}

/// An entry of the stream as an event.
pub(super) fn event(entry: StreamId) -> Event {
    let field = |name: &str| entry.get::<String>(name);
    let kind = match field("event").as_deref().unwrap_or_default() {
        "added" => EventKind::Added,
        "waiting" => EventKind::Waiting,
        "active" => EventKind::Active,
        "completed" if field("returnvalue").as_deref() == Some(DROPPED_STORED) => {
            EventKind::Dropped
        }
        "completed" => EventKind::Completed,
        "failed" => {
            EventKind::Failed { reason: clip_error(&field("failedReason").unwrap_or_default()) }
        }
        "stalled" => EventKind::Stalled,
        "duplicated" => EventKind::Duplicated,
        "removed" => EventKind::Removed,
        other => EventKind::Other(other.to_owned()),
    };
    let job_id = field("jobId");
    Event { position: Position::after(entry.id), job_id, kind }
}
