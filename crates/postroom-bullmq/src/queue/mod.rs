//! A queue: adding jobs, looking at them, removing them.

mod add;
mod events;
mod finished;
mod job_id;
mod keys;
mod presence;
mod remove;
mod script;
mod states;
mod streams;

pub(crate) use add::now_ms;
pub use add::{Added, NewJob};
pub use events::{Event, EventKind, Events, Position};
pub use finished::{Finished, FinishedPage};
pub(crate) use presence::{Presence, presence};
pub(crate) use states::DROPPED;
pub use states::JobState;
pub(crate) use streams::Streams;

use crate::error::QueueError;
use crate::server::Redis;
use keys::Keys;
use redis::{FromRedisValue, RedisResult, Value, cmd, pipe};

/// A BullMQ queue. Cheap to clone; all queues of one [`Redis`] share its connection.
///
/// Every call may be repeated: what an earlier one did whose answer was lost is found again.
#[derive(Clone, Debug)]
pub struct Queue {
    redis: Redis,
    name: String,
    keys: Keys,
}

/// How many jobs a queue has, by where they are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// To be run as soon as a worker has time. Those of a paused queue count here too.
    pub waiting: u64,
    /// Being run.
    pub active: u64,
    /// To be run at some later time.
    pub delayed: u64,
    /// To be run by priority.
    pub prioritized: u64,
    /// Waiting for jobs that they have made.
    pub waiting_children: u64,
    /// Run with success, and kept.
    pub completed: u64,
    /// Run without, and kept.
    pub failed: u64,
}

impl Queue {
    /// A queue by its name. Nothing is connected or written yet.
    ///
    /// # Errors
    /// When BullMQ would refuse the name, or a cluster could not hold the queue's keys together.
    pub fn open(redis: &Redis, name: &str) -> Result<Self, QueueError> {
        if name.is_empty() || name.contains(':') {
            return Err(QueueError::misconfigured(
                redis.place(),
                format!("BullMQ allows no queue called {name:?}: no colons, and not empty"),
            ));
        }
        let keys = Keys::new(&redis.server.prefix, name);
        if redis.server.is_cluster && !keys.share_a_slot() {
            return Err(QueueError::misconfigured(
                redis.place(),
                format!(
                    "the keys of {name:?} would be spread over a cluster: put the prefix into \
                     braces, as in {{bull}}, here and in every other producer and worker",
                ),
            ));
        }
        Ok(Self { redis: redis.clone(), name: name.to_owned(), keys })
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server it is on.
    #[must_use]
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// How many jobs there are.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn counts(&self) -> Result<Counts, QueueError> {
        let mut pipeline = pipe();
        for list in ["wait", "paused", "active"] {
            pipeline.add_command(cmd("LLEN")).arg(self.keys.of(list));
        }
        for set in ["delayed", "prioritized", "waiting-children", "completed", "failed"] {
            pipeline.add_command(cmd("ZCARD")).arg(self.keys.of(set));
        }
        let answers = self.redis.link.ask_all(&mut pipeline).await?;
        let mut counts = answers.into_iter().map(|answer| self.read::<u64>(answer));
        let mut next = || counts.next().unwrap_or(Ok(0));
        Ok(Counts {
            waiting: next()? + next()?,
            active: next()?,
            delayed: next()?,
            prioritized: next()?,
            waiting_children: next()?,
            completed: next()?,
            failed: next()?,
        })
    }

    /// The position in the event stream that was stored last; `None` when there is none.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn stored_position(&self) -> Result<Option<Position>, QueueError> {
        let mut command = cmd("GET");
        command.arg(self.keys.of(keys::POSITION));
        let stored: Option<String> = self.redis.link.ask(&command).await?;
        Ok(stored.map(Position::after))
    }

    /// Stores a position in the event stream, beside the queue, so that it is lost with it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn store_position(&self, position: &Position) -> Result<(), QueueError> {
        let Some(id) = position.id() else { return Ok(()) };
        let mut command = cmd("SET");
        command.arg(self.keys.of(keys::POSITION)).arg(id);
        self.redis.link.ask(&command).await
    }

    /// A job's options as they are stored; null when there are none.
    pub(crate) async fn stored_options(&self, id: &str) -> Result<serde_json::Value, QueueError> {
        let mut command = cmd("HGET");
        command.arg(self.keys.of(id)).arg("opts");
        let stored: Option<String> = self.redis.link.ask(&command).await?;
        Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// How many attempts had failed before each of these jobs was added; `None` where there is none.
    pub(crate) async fn failed_before(
        &self,
        ids: &[String],
    ) -> Result<Vec<Option<u32>>, QueueError> {
        let mut counts = Vec::with_capacity(ids.len());
        for part in ids.chunks(script::JOBS_MAX) {
            let mut pipeline = pipe();
            for id in part {
                let key = self.keys.of(id);
                pipeline.add_command(cmd("HMGET")).arg(key).arg("name").arg(keys::FAILED_BEFORE);
            }
            for answer in self.redis.link.ask_all(&mut pipeline).await? {
                let (name, failed): (Option<Vec<u8>>, Option<u32>) = self.read(answer)?;
                counts.push(name.map(|_| failed.unwrap_or(0)));
            }
        }
        Ok(counts)
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.redis.server.prefix
    }

    fn read<T: FromRedisValue>(&self, answer: RedisResult<Value>) -> Result<T, QueueError> {
        let read = answer.and_then(|value| Ok(redis::from_redis_value::<T>(value)?));
        read.map_err(|error| QueueError::of(self.redis.place(), error))
    }
}
