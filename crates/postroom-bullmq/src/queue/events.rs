//! What happened to a queue's jobs, read from its event stream.

use super::Queue;
use super::states::DROPPED_STORED;
use crate::error::QueueError;
use crate::link::{Wire, connect};
use postroom_core::clip_error;
use redis::streams::{StreamId, StreamReadReply};
use redis::{FromRedisValue, cmd};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How many events are read at once, and kept until somebody asks for them.
const EVENTS_MAX: usize = 500;
/// How long Redis waits for the next event, and how much later we give up on its answer.
const BLOCK: Duration = Duration::from_secs(2);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long to wait before another try after a failure.
const PAUSE: Duration = Duration::from_millis(500);

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
    received: mpsc::Receiver<Result<Event, QueueError>>,
    reader: Option<JoinHandle<()>>,
}

impl Queue {
    /// What happens to this queue's jobs, from a position on. Needs a Tokio runtime.
    #[must_use]
    pub fn events(&self, from: Position) -> Events {
        let (sender, received) = mpsc::channel(EVENTS_MAX);
        let mut reader = Reader { queue: self.clone(), position: from, wire: None, sender };
        Events { received, reader: Some(tokio::spawn(async move { reader.run().await })) }
    }
}

impl Events {
    /// The next event, once there is one. After an error it goes on where it was: Redis is tried
    /// again at each call. May be cancelled without missing anything.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn next(&mut self) -> Result<Event, QueueError> {
        match self.received.recv().await {
            Some(next) => next,
            // The reader ends only with us, when its runtime does, or by a defect of ours: then so
            // do we, since nobody would hear anything any more.
            None => {
                if let Some(reader) = &mut self.reader {
                    let ended = reader.await;
                    self.reader = None;
                    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                        std::panic::resume_unwind(panic);
                    }
                }
                std::future::pending().await
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

struct Reader {
    queue: Queue,
    position: Position,
    wire: Option<Wire>,
    sender: mpsc::Sender<Result<Event, QueueError>>,
}

impl Reader {
    async fn run(&mut self) {
        loop {
            let entries = match self.read().await {
                Ok(entries) => entries,
                Err(error) => {
                    self.wire = None;
                    if self.sender.send(Err(error)).await.is_err() {
                        return;
                    }
                    sleep(PAUSE).await;
                    continue;
                }
            };
            for entry in entries {
                self.position = Position::after(entry.id.clone());
                if self.sender.send(Ok(event(entry))).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<StreamId>, QueueError> {
        let key = self.queue.keys.of("events");
        let from = match &self.position.0 {
            At::Start => "0-0".to_owned(),
            At::After(id) => id.clone(),
            At::End => {
                // Asked for once: between two reads the end moves.
                let mut newest = cmd("XREVRANGE");
                newest.arg(&key).arg("+").arg("-").arg("COUNT").arg(1);
                let newest: Vec<(String, Vec<String>)> = self.ask(&newest).await?;
                let id = newest.into_iter().next().map_or("0-0".to_owned(), |(id, _)| id);
                self.position = Position::after(id.clone());
                id
            }
        };
        let mut command = cmd("XREAD");
        command.arg("COUNT").arg(EVENTS_MAX).arg("BLOCK").arg(BLOCK.as_millis() as u64);
        command.arg("STREAMS").arg(key).arg(from);
        let reply: Option<StreamReadReply> = self.ask(&command).await?;
        Ok(reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids).collect())
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, QueueError> {
        let server = &self.queue.redis.server;
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => connect(server, None).await?,
        };
        let answer = timeout(ANSWER_MAX, wire.ask(command))
            .await
            .map_err(|_| QueueError::away(&server.place, "no answer in time"))?
            .map_err(|error| QueueError::of(&server.place, error))?;
        // Only after an answer is it sure that the next one belongs to the next command.
        self.wire = Some(wire);
        Ok(answer)
    }
}

fn event(entry: StreamId) -> Event {
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
