//! Hands messages over to a queue as jobs.

use super::dispatcher::{Dispatcher, Hindrance};
use super::faults::Who;
use super::finished_jobs::settle_finished_jobs;
use super::lanes::Workers;
use super::names::JobName;
use super::reopening::{Reopened, reopen};
use super::settler::{JobReport, Settler};
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::{Added, JobState, NewJob, Queue};
use postroom_core::{Fate, Outcome, Taken, Token, with_causes};
use postroom_relay::{JobOutcome, judge};
use std::sync::Arc;
use std::time::Duration;

/// When a message is due again that somebody else has locked.
const LOCKED_WAIT: Duration = Duration::from_secs(1);

/// What became of a message that was to be a job.
enum Job {
    New,
    /// It was there already.
    Exists,
    /// It was there already, and nobody can tell by the message whether it has failed: it does not
    /// count, and there is another.
    Doubtful,
    Refused(String),
}

impl Dispatcher {
    /// Adds messages of a claim to a queue, and sees to what does not become a job.
    pub(super) async fn add(
        &self,
        token: Token,
        lane: usize,
        name: String,
        mut messages: Vec<Taken>,
    ) -> Result<(), Hindrance> {
        let integration = &self.shared.lanes[lane].lane.integration;
        let count = messages.len() as u64;
        self.shared.metrics.taken(integration, count);
        tracing::debug!(operation = "OUTBOX_CLAIM", phase = "SUCCESS", integration, count);
        // Before they are added: their end may be heard of at once.
        for taken in &messages {
            let failed_before = taken.message.attempts;
            self.shared.outstanding.add(&JobName::of(taken), lane, &name, token, failed_before);
        }
        tracing::debug!(operation = "OUTBOX_ENQUEUE_JOB", phase = "START", queue = name, count);
        let (queue, added) = match self.add_to(token, lane, &name, &mut messages).await {
            Ok(added) => added,
            Err(error) => {
                tracing::debug!(
                    operation = "OUTBOX_ENQUEUE_JOB",
                    phase = "FAILED",
                    queue = name,
                    error = with_causes(&error)
                );
                self.give_back(token, &messages);
                // What only this queue has is no matter of the others. A login that fails is one of
                // all queues, though.
                if !error.is_away() && self.shared.redis.probe().await.is_ok() {
                    self.shared.faults.begin(&name, Who::Dispatcher, &error);
                    return Ok(());
                }
                self.shared.redis_away(&error);
                return Err(Hindrance::Redis);
            }
        };
        self.shared.faults.end(&name, Who::Dispatcher);
        self.note(token, lane, &queue, &messages, &added);
        Ok(())
    }

    /// Adds messages to a queue as jobs, and says of each what became of it. Those that cannot be
    /// now are taken out, and are due again soon.
    async fn add_to(
        &self,
        token: Token,
        lane: usize,
        name: &str,
        messages: &mut Vec<Taken>,
    ) -> Result<(Queue, Vec<Job>), QueueError> {
        let queue = self.queues.open(lane, name)?;
        let Reopened { existing, reopened, locked } =
            reopen(&self.shared, token, &queue, messages).await?;
        if !locked.is_empty() {
            let is_locked = |taken: &mut Taken| locked.contains(&taken.message.seq);
            let left: Vec<Taken> = messages.extract_if(.., is_locked).collect();
            self.let_go(token, &left, &Fate::Postponed { delay: LOCKED_WAIT });
        }
        let settings = &self.shared.lanes[lane].lane;
        let keep_finished = matches!(settings.workers, Workers::External);
        let is_new = |taken: &&Taken| !existing.contains(&JobName::of(taken));
        let new: Vec<NewJob> = messages
            .iter()
            .filter(is_new)
            .map(|taken| NewJob {
                id: JobName::of(taken).id(),
                name: taken.message.event_type.clone(),
                data: settings.data.of(&taken.message),
                keep_finished,
                failed_before: taken.message.attempts,
            })
            .collect();
        let mut answers = queue.add(&new).await?.into_iter();
        let added = messages
            .iter()
            .map(|taken| {
                let answer = if is_new(&taken) { answers.next() } else { Some(Added::Exists) };
                match answer {
                    Some(Added::New) => Job::New,
                    Some(Added::Refused(reason)) => Job::Refused(reason),
                    // A relay that has lost its claim added it just now: its worker may have marked
                    // the message before that was set back.
                    Some(Added::Exists) if reopened.contains(&JobName::of(taken)) => Job::Doubtful,
                    Some(Added::Exists) | None => Job::Exists,
                }
            })
            .collect();
        Ok((queue, added))
    }

    /// Sees to what is no new job: one that exists is looked at, one that is refused has failed.
    fn note(&self, token: Token, lane: usize, queue: &Queue, messages: &[Taken], added: &[Job]) {
        let integration = &self.shared.lanes[lane].lane.integration;
        let mut existing = Vec::new();
        let (mut new, mut refused) = (0, Vec::new());
        for (taken, added) in messages.iter().zip(added) {
            let name = JobName::of(taken);
            match added {
                Job::New => {
                    self.shared.outstanding.added(&name);
                    new += 1;
                }
                Job::Exists => {
                    self.shared.outstanding.added(&name);
                    existing.push(name);
                }
                Job::Doubtful => {
                    let (message, dispatch) = (taken.message.clone(), taken.dispatch);
                    let fate = Fate::Released;
                    let report = JobReport { message, dispatch, fate, failed_before: None };
                    self.unqueued.report(&self.settler, lane, token, report);
                }
                Job::Refused(reason) => refused.push((taken, reason)),
            }
        }
        let metrics = &self.shared.metrics;
        metrics.jobs(integration, JobOutcome::ADDED, new);
        metrics.jobs(integration, JobOutcome::FOUND, existing.len() as u64);
        metrics.jobs(integration, JobOutcome::REFUSED, refused.len() as u64);
        tracing::debug!(
            operation = "OUTBOX_ENQUEUE_JOB",
            phase = "SUCCESS",
            queue = queue.name(),
            new,
            found = existing.len(),
            refused = refused.len()
        );
        if !existing.is_empty() {
            let (shared, settler) = (Arc::clone(&self.shared), self.settler.clone());
            self.unqueued.spawn(look_at(shared, settler, queue.clone(), existing));
        }
        for (taken, reason) in refused {
            tracing::warn!(
                operation = "OUTBOX_ENQUEUE_JOB",
                phase = "FAILED",
                id = %taken.message.id,
                queue = queue.name(),
                error = reason,
                "the queue refuses this job: that is a failed attempt"
            );
            let fate = judge(
                &self.shared.lanes[lane].lane.retry,
                self.shared.settings.dead_letter.as_deref(),
                &taken.message,
                Outcome::retry(format!("the queue refused the job: {reason}")),
                Duration::ZERO,
                &self.shared.jitter,
            );
            let message = taken.message.clone();
            let report = JobReport { message, dispatch: taken.dispatch, fate, failed_before: None };
            self.unqueued.report(&self.settler, lane, token, report);
        }
    }
}

/// A job of this number was there before: it goes on if it waits or runs, and says how it ended
/// if it has. What goes wrong here the sweep sees to.
async fn look_at(shared: Arc<Shared>, settler: Settler, queue: Queue, names: Vec<JobName>) {
    let ids: Vec<String> = names.iter().map(|name| name.id()).collect();
    let states = match queue.states(&ids).await {
        Ok(states) => states,
        Err(error) => return shared.redis_fails(queue.name(), Who::Dispatcher, &error),
    };
    // One that is missing may have completed a moment ago: it is gone when the sweep misses it too.
    let found: Vec<(JobName, JobState)> =
        names.into_iter().zip(states).filter(|(_, state)| *state != JobState::Gone).collect();
    let removed = async {
        let over = settle_finished_jobs(&shared, &settler, &queue, &found).await?;
        queue.remove(&over).await
    };
    if let Err(error) = removed.await {
        shared.redis_fails(queue.name(), Who::Dispatcher, &error);
    }
}
