//! Settles dispatches by what is seen of their jobs.

use super::marked;
use super::names::JobName;
use super::reader::{Unread, dispatched};
use super::settler::{Ack, JobReport, Settler};
use super::shared::{LaneState, Shared};
use crate::error::QueueError;
use crate::queue::{JobState, Queue};
use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use postroom_core::{Dispatched, Fate, Message, MessageId};
use postroom_relay::{JobOutcome, judge};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many messages are read together at most, and about how many bytes of them.
const READ_MAX: usize = 500;
const READ_BYTES: usize = 4 << 20;
/// How many at first, when nothing is known of their size.
const READ_FIRST: usize = 16;
/// How many jobs of messages that are settled are looked up at the same time.
const LOOKS: usize = 8;

/// How many messages are read together, by the size of those before: whatever is in the queues
/// when all of it is to be looked at, what is in memory is bounded.
#[derive(Debug)]
pub(crate) struct ReadSize(AtomicUsize);

impl Default for ReadSize {
    fn default() -> Self {
        Self(AtomicUsize::new(READ_FIRST))
    }
}

impl ReadSize {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn learn<'a>(&self, read: impl Iterator<Item = &'a Message>) {
        let (mut count, mut bytes) = (0_usize, 0_usize);
        for message in read {
            count += 1;
            let headers = message.headers.as_ref().map_or(0, |headers| headers.as_str().len());
            bytes += message.payload.as_str().len() + headers;
        }
        if let Some(each) = bytes.checked_div(count) {
            // By steps: a few small ones say little of the next.
            let most = self.get().saturating_mul(4).min(READ_MAX);
            self.0.store((READ_BYTES / each.max(1)).clamp(1, most), Ordering::Relaxed);
        }
    }
}

/// Records what a queue's jobs say that have finished or gone: completed is SENT, failed is a failed
/// attempt with its reason, unless their worker has marked the message itself; gone or dropped is
/// nothing but the end of the dispatch. Returns the ids of finished jobs that nobody needs any more.
/// What is not of this outbox is left alone, and so is a job that waits or runs, and one whose report
/// the database refuses. Fails when Redis does not answer.
pub(crate) async fn settle_finished_jobs(
    shared: &Shared,
    settler: &Settler,
    queue: &Queue,
    found: &[(JobName, JobState)],
) -> Result<Vec<String>, QueueError> {
    let Recorded { over, closed } = record(shared, settler, queue, found).await?;
    let looks = closed.into_iter().map(|name| async move {
        let is_ours = is_ours(shared, &name.message).await;
        is_ours.then_some(name)
    });
    let ours: Vec<Option<JobName>> = stream::iter(looks).buffer_unordered(LOOKS).collect().await;
    Ok(over.into_iter().chain(ours.into_iter().flatten()).map(|name| name.id()).collect())
}

/// The finished jobs whose dispatch is known to be over.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Those of messages that are, or were until now, to be delivered.
    pub(crate) over: Vec<JobName>,
    /// Those of messages with nothing to be delivered, which may not be this outbox's at all.
    pub(crate) closed: Vec<JobName>,
}

/// Does what [`settle_finished_jobs`] does, without looking up messages that are settled.
pub(crate) async fn record(
    shared: &Shared,
    settler: &Settler,
    queue: &Queue,
    found: &[(JobName, JobState)],
) -> Result<Recorded, QueueError> {
    let mut seen = HashSet::new();
    let over: Vec<&(JobName, JobState)> = found
        .iter()
        .filter(|(name, state)| *state != JobState::Live && seen.insert(name))
        .collect();
    let mut recorded = Recorded::default();
    let mut gone = BTreeMap::new();
    let mut rest = &over[..];
    while !rest.is_empty() {
        let (part, later) = rest.split_at(shared.read_size.get().clamp(1, rest.len()));
        record_part(shared, settler, queue, part, &mut recorded, &mut gone).await?;
        rest = later;
    }
    for (integration, jobs) in gone {
        shared.metrics.jobs(&integration, JobOutcome::GONE, jobs);
        tracing::warn!(
            operation = "OUTBOX_ENQUEUE_JOB",
            phase = "FAILED",
            integration,
            jobs,
            "jobs disappeared from Redis without an event; dispatching their messages again"
        );
    }
    Ok(recorded)
}

async fn record_part(
    shared: &Shared,
    settler: &Settler,
    queue: &Queue,
    part: &[&(JobName, JobState)],
    recorded: &mut Recorded,
    gone: &mut BTreeMap<String, u64>,
) -> Result<(), QueueError> {
    let ids: Vec<MessageId> = part.iter().map(|(name, _)| name.message.clone()).collect();
    let open = dispatched(shared, &ids).await;
    shared.read_size.learn(open.values().flatten().map(|one| &one.message));
    let failed_before = failed_before(shared, queue, part, &open).await?;
    let mut asked = Vec::new();
    let mut reports = Vec::new();
    for (name, state) in part {
        let is_finished = *state != JobState::Gone;
        match open.get(&name.message) {
            // It stays where it is until somebody can read it.
            Some(Err(_)) => {}
            // Closed before a worker of ours got to it, which therefore dropped its job.
            Some(Ok(counts)) if !counts.is_open() && *state == JobState::Dropped => {
                shared.outstanding.settled(name);
                recorded.closed.push(name.clone());
            }
            Some(Ok(counts)) if counts.number == name.dispatch => {
                let before = failed_before.get(name).copied();
                let Some(fate) = fate(shared, queue.name(), counts, state, before) else {
                    continue;
                };
                asked.push((name, state, counts));
                let message = counts.message.clone();
                let report =
                    JobReport { message, dispatch: name.dispatch, fate, failed_before: before };
                reports.push(settler.ask(report).boxed());
            }
            Some(Ok(_)) => {
                shared.outstanding.settled(name);
                recorded.over.extend(is_finished.then(|| name.clone()));
            }
            // Settled before, by whoever delivered it.
            None => {
                shared.outstanding.settled(name);
                recorded.closed.extend(is_finished.then(|| name.clone()));
            }
        }
    }
    for ((name, state, counts), ack) in asked.into_iter().zip(join_all(reports).await) {
        match ack {
            // Looked at again: it is still there, or still missing.
            Ack::Refused => continue,
            Ack::Recorded
                if counts.is_open() && matches!(state, JobState::Gone | JobState::Dropped) =>
            {
                *gone.entry(counts.message.integration.clone()).or_default() += 1;
            }
            Ack::Recorded | Ack::Late => {}
        }
        recorded.over.extend((*state != JobState::Gone).then(|| name.clone()));
    }
    Ok(())
}

/// How many attempts had failed before each of these dispatches, where that matters and is known: by
/// its job, or by what is outstanding where the job is gone.
async fn failed_before(
    shared: &Shared,
    queue: &Queue,
    part: &[&(JobName, JobState)],
    open: &HashMap<MessageId, Result<Dispatched, Unread>>,
) -> Result<HashMap<JobName, u32>, QueueError> {
    let counts = |name: &JobName| {
        let row = open.get(&name.message).and_then(|row| row.as_ref().ok());
        row.is_some_and(|row| row.number == name.dispatch && marked::needs_count(row))
    };
    let names: Vec<JobName> =
        part.iter().map(|(name, _)| name).filter(|name| counts(name)).cloned().collect();
    let ids: Vec<String> = names.iter().map(|name| name.id()).collect();
    let kept = queue.failed_before(&ids).await?;
    let known = |(name, kept): (JobName, Option<u32>)| {
        let before = kept.or_else(|| shared.outstanding.failed_before(&name))?;
        Some((name, before))
    };
    Ok(names.into_iter().zip(kept).filter_map(known).collect())
}

/// What a job says about the dispatch that counts, or its worker did. A message that was sent elsewhere by hand while
/// its job was in this queue goes there, if it was us who put the job here: nobody else would end
/// the dispatch. Otherwise it is not this job's to say, and there is `None`.
fn fate(
    shared: &Shared,
    queue: &str,
    counts: &Dispatched,
    state: &JobState,
    failed_before: Option<u32>,
) -> Option<Fate> {
    let Some(LaneState { lane, .. }) = shared.lane_in(queue, &counts.message) else {
        let name = JobName { message: counts.message.id.clone(), dispatch: counts.number };
        let is_over = *state != JobState::Live && shared.outstanding.has_in(&name, queue);
        return is_over.then_some(Fate::Released);
    };
    let Some(outcome) = marked::outcome(counts, state, failed_before) else {
        // Whatever the row says by now is followed.
        return (*state != JobState::Live).then_some(Fate::Released);
    };
    let message = marked::before_attempt(&counts.message, failed_before);
    let dead_letter = shared.settings.dead_letter.as_deref();
    // How long it took is not known here.
    let took = Duration::ZERO;
    Some(judge(&lane.retry, dead_letter, &message, outcome, took, &shared.jitter))
}

/// Whether a job whose message has nothing to be delivered came from this outbox.
async fn is_ours(shared: &Shared, id: &MessageId) -> bool {
    let found = shared.retry(|| shared.store.find(id)).await;
    matches!(found, Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::data::foreign;
    use postroom_core::RawJson;

    #[test]
    fn as_many_are_read_as_fit() {
        let of = |bytes: usize| {
            let mut message = foreign("noop", "job", "t", &serde_json::Value::Null);
            message.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(bytes - 2)));
            message
        };
        let size = ReadSize::default();
        assert_eq!(size.get(), READ_FIRST);
        let small = vec![of(100); 3];
        for most in [4 * READ_FIRST, 16 * READ_FIRST, READ_MAX, READ_MAX] {
            size.learn(small.iter());
            assert_eq!(size.get(), most);
        }
        size.learn([of(1 << 20)].iter());
        assert_eq!(size.get(), 4);
        size.learn([of(8 << 20)].iter());
        assert_eq!(size.get(), 1);
        size.learn(std::iter::empty());
        assert_eq!(size.get(), 1);
    }
}
