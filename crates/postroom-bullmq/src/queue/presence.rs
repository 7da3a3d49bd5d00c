//! Whether queues have anything to do, many at a time and without a connection to each.

use super::Queue;
use super::script::JOBS_MAX;
use crate::error::QueueError;
use crate::server::Redis;
use redis::{RedisResult, Value, cmd, pipe};

/// Where jobs are that wait or run.
const LIVE: [&str; 5] = ["wait", "paused", "active", "delayed", "prioritized"];
/// Where they are kept once they have finished.
const FINISHED: [&str; 2] = ["completed", "failed"];

/// What is in a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Presence {
    /// Whether a job waits or runs.
    pub(crate) has_live: bool,
    /// Whether a job has finished and is kept.
    pub(crate) has_finished: bool,
    /// How many jobs it was ever given: BullMQ counts them, whoever adds one.
    pub(crate) given: u64,
}

/// What is in each of these queues, which are all on `redis`. One that cannot be looked at does not
/// keep others from it; that Redis is away concerns all of them.
pub(crate) async fn presence(
    redis: &Redis,
    queues: &[Queue],
) -> Result<Vec<Result<Presence, QueueError>>, QueueError> {
    let mut found = Vec::with_capacity(queues.len());
    for part in queues.chunks(JOBS_MAX) {
        let mut pipeline = pipe();
        for queue in part {
            for keys in [&LIVE[..], &FINISHED[..]] {
                let keys: Vec<String> = keys.iter().map(|key| queue.keys.of(key)).collect();
                pipeline.add_command(cmd("EXISTS")).arg(keys);
            }
            pipeline.add_command(cmd("GET")).arg(queue.keys.of("id"));
        }
        let mut answers = redis.link.ask_all(&mut pipeline).await?.into_iter();
        for queue in part {
            // All of them, so that the next queue begins with its own.
            let of_queue: Vec<_> = answers.by_ref().take(3).collect();
            match read(queue, of_queue) {
                Err(error) if error.is_away() => return Err(error),
                one => found.push(one),
            }
        }
    }
    Ok(found)
}

fn read(queue: &Queue, answers: Vec<RedisResult<Value>>) -> Result<Presence, QueueError> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().ok_or_else(|| queue.unfit("a look at queues"));
    let has_live = queue.read::<u64>(next()?)? > 0;
    let has_finished = queue.read::<u64>(next()?)? > 0;
    // Whatever somebody else has written there.
    let given = queue.read::<Option<Vec<u8>>>(next()?)?;
    let given = given.and_then(|given| str::from_utf8(&given).ok()?.parse().ok());
    Ok(Presence { has_live, has_finished, given: given.unwrap_or(0) })
}
