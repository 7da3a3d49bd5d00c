//! Runs jobs: reads the message, delivers it, settles with the outbox, and only then ends the job.

use super::data::{foreign, names};
use super::lanes::{Delivery, Workers};
use super::names::JobName;
use super::reader::{Reader, Unread};
use super::settler::{Ack, JobReport, Settler};
use super::shared::{LaneState, Shared};
use crate::worker::{Job, JobFailure, Processor};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use postroom_core::{Fate, Message, Outcome, OutcomeReceiver, Report};
use postroom_relay::{Probe, judge, keep_responses, panicked, unanswered};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest that a job is put off: it waits in Redis, and what it waits for may be over sooner.
const LATER_MAX: Duration = Duration::from_secs(30);
/// How long a job is put off that cannot be delivered here now.
const NOT_HERE: Duration = Duration::from_secs(5);

pub(crate) struct Deliverer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settler: Settler,
    pub(crate) reader: Reader,
    pub(crate) queue: String,
    /// For jobs of others. That of a message follows from the message: lanes may share a queue.
    pub(crate) lane: usize,
    pub(crate) delivery: Delivery,
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[async_trait]
impl Processor for Deliverer {
    async fn process(&self, job: Job) -> Result<(), JobFailure> {
        let Some(name) = JobName::parse(job.id()) else { return self.deliver_foreign(&job).await };
        match self.reader.ask(name.message.clone()).await {
            Ok(Some(open)) if open.number == name.dispatch => {
                match self.serves(&open.message) {
                    Some((state, delivery)) => {
                        self.deliver_own(&job, &name, open.message, state, delivery).await
                    }
                    None if self.is_elsewhere(&name, &open.message) => {
                        self.give_back(&name, open.message).await
                    }
                    // For workers of somebody else on this queue, or of a lane that is unknown here.
                    None => Err(JobFailure::Later(NOT_HERE)),
                }
            }
            // Settled, cancelled, or dispatched again: there is nothing to deliver for it.
            Ok(Some(_)) => Err(JobFailure::Dropped),
            Ok(None) if names(job.data(), &name.message) => Err(JobFailure::Dropped),
            Ok(None) => self.deliver_foreign(&job).await,
            Err(Unread) => Err(JobFailure::Later(NOT_HERE)),
        }
    }
}

impl Deliverer {
    /// The lane of a message whose job is in this queue, if it is ours to deliver.
    fn serves(&self, message: &Message) -> Option<(&LaneState, &Delivery)> {
        let state = self.shared.lane_in(&self.queue, message)?;
        match &state.lane.workers {
            Workers::Own(delivery) => Some((state, delivery)),
            Workers::External => None,
        }
    }

    /// Whether a message was sent elsewhere by hand while its job was in this queue: where its lane
    /// is known here, and has another queue, or where we have put the job here ourselves.
    fn is_elsewhere(&self, name: &JobName, message: &Message) -> bool {
        let Shared { outstanding, .. } = &*self.shared;
        self.shared.lane_in(&self.queue, message).is_none()
            && (self.shared.lane(&message.integration).is_some()
                || outstanding.has_in(name, &self.queue))
    }

    /// Ends the dispatch of a message that was sent elsewhere, which is followed at once. Where that
    /// is said by nothing but the configuration of this process, and relays have another, the
    /// message comes again, and does not come in a hurry.
    async fn give_back(&self, name: &JobName, message: Message) -> Result<(), JobFailure> {
        let fate = Fate::Postponed { delay: NOT_HERE };
        let report = JobReport { message, dispatch: name.dispatch, fate, failed_before: None };
        match self.settler.ask(report).await {
            Ack::Recorded | Ack::Late => Err(JobFailure::Dropped),
            Ack::Refused => Err(JobFailure::Later(NOT_HERE)),
        }
    }

    async fn deliver_own(
        &self,
        job: &Job,
        name: &JobName,
        message: Message,
        state: &LaneState,
        delivery: &Delivery,
    ) -> Result<(), JobFailure> {
        let probe = self.wait_for_turn(job, state, message.tenant_id.as_deref())?;
        tracing::debug!(
            operation = "OUTBOX_DELIVER",
            phase = "START",
            id = %message.id,
            event_id = message.event_id,
            integration = message.integration,
            dispatch = name.dispatch,
        );
        let began = Instant::now();
        let (outcome, response) = self.deliver(&message, delivery).await;
        let took = began.elapsed();
        // Where everything is refused, the job waits in its queue, and no attempt is used.
        let outcome = state.pauses.weigh(&message.id, outcome).await.map_err(later)?;
        drop(probe);
        let fate = judge(
            &state.lane.retry,
            self.shared.settings.dead_letter.as_deref(),
            &message,
            outcome,
            took,
            &self.shared.jitter,
        );
        let ending = ending(&fate);
        let response = response.filter(|_| ending.is_err());
        let response = response.map(|response| (message.id.clone(), response));
        let report = JobReport { message, dispatch: name.dispatch, fate, failed_before: None };
        match self.settler.ask(report).await {
            Ack::Recorded => {
                keep_responses(&*self.shared.store, response.as_slice()).await;
                ending
            }
            // Somebody else has settled it, and this report is not to be handed in a second time.
            Ack::Late => Err(JobFailure::Dropped),
            Ack::Refused => Err(JobFailure::Failed {
                reason: "the database refuses the outcome; the message is delivered again"
                    .to_owned(),
            }),
        }
    }

    /// A job without a message in the outbox is delivered from its data, and ends in BullMQ alone.
    async fn deliver_foreign(&self, job: &Job) -> Result<(), JobFailure> {
        let state = &self.shared.lanes[self.lane];
        let message = foreign(&state.lane.integration, job.id(), job.name(), job.data());
        let probe = self.wait_for_turn(job, state, message.tenant_id.as_deref())?;
        let (outcome, _) = self.deliver(&message, &self.delivery).await;
        let outcome = state.pauses.weigh(&message.id, outcome).await.map_err(later)?;
        drop(probe);
        match outcome {
            Outcome::Delivered => Ok(()),
            Outcome::Retry { error, .. } | Outcome::Refuse { error } => {
                Err(JobFailure::Failed { reason: error })
            }
            Outcome::Reject { error } | Outcome::Gone { error } => {
                Err(JobFailure::Unrecoverable { reason: error })
            }
        }
    }

    /// Whether a job may be delivered now. What is returned is kept until its outcome is known.
    fn wait_for_turn<'a>(
        &self,
        job: &Job,
        state: &'a LaneState,
        tenant: Option<&str>,
    ) -> Result<Option<Probe<'a>>, JobFailure> {
        // BullMQ counts in milliseconds, and a job must not come back too early.
        let put_off = |wait: Duration| later(wait + Duration::from_millis(1));
        let probe = state.pauses.enter().map_err(put_off)?;
        match self.shared.turns.wait(&self.queue, job.id(), tenant) {
            Some(wait) => Err(put_off(wait)),
            None => Ok(probe),
        }
    }

    /// One sink call for one message. Whatever it does, there is an outcome; what the receiver
    /// answered comes with it, where the integration keeps that.
    async fn deliver(&self, message: &Message, delivery: &Delivery) -> (Outcome, Option<String>) {
        let first = FirstWord::default();
        let limit = delivery.timeout;
        let began = Instant::now();
        let missing = {
            let report = Report::new(&first);
            let batch = std::slice::from_ref(message);
            let call = AssertUnwindSafe(delivery.sink.deliver(batch, &report)).catch_unwind();
            match tokio::time::timeout(limit, call).await {
                Ok(Ok(())) => "the sink reported no outcome".to_owned(),
                Ok(Err(panic)) => panicked(&*panic),
                Err(_) => unanswered(limit),
            }
        };
        self.shared.metrics.delivery_took(&message.integration, began.elapsed());
        let FirstWord { outcome, response } = first;
        let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        let response = response.into_inner().unwrap_or_else(PoisonError::into_inner);
        (outcome.unwrap_or(Outcome::retry(missing)), response)
    }
}

fn later(wait: Duration) -> JobFailure {
    JobFailure::Later(wait.min(LATER_MAX))
}

/// How the job ends in BullMQ once the outbox knows.
fn ending(fate: &Fate) -> Result<(), JobFailure> {
    match fate {
        Fate::Sent => Ok(()),
        Fate::Released | Fate::Postponed { .. } => Err(JobFailure::Dropped),
        Fate::Failed { error, .. } => Err(JobFailure::Failed { reason: error.clone() }),
        Fate::Dead { error, .. } => Err(JobFailure::Unrecoverable { reason: error.clone() }),
    }
}

/// Keeps the first outcome of the one message of a call.
#[derive(Default)]
struct FirstWord {
    outcome: Mutex<Option<Outcome>>,
    response: Mutex<Option<String>>,
}

impl OutcomeReceiver for FirstWord {
    fn outcome(&self, _: usize, outcome: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
    }

    fn response(&self, _: usize, response: String) {
        self.response.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_put_off_for_a_while_at_most() {
        let seconds = Duration::from_secs;
        assert_eq!(later(seconds(3)), JobFailure::Later(seconds(3)));
        assert_eq!(later(seconds(3_600)), JobFailure::Later(LATER_MAX));
    }
}
