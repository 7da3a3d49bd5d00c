//! Runs jobs: reads the message, delivers it, settles with the outbox, and only then ends the job.

use super::data::{foreign, names};
use super::lanes::Delivery;
use super::names::JobName;
use super::reader::Reader;
use super::settler::{Said, Settler, Word};
use super::shared::Shared;
use crate::worker::{Job, JobFailure, Processor};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use postroom_core::{Fate, Message, Outcome, OutcomeReceiver, Report};
use postroom_relay::{judge, panicked, unanswered};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) struct Deliverer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settler: Settler,
    pub(crate) reader: Reader,
    pub(crate) lane: usize,
    pub(crate) delivery: Delivery,
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let integration = &self.shared.lanes[self.lane].lane.integration;
        f.debug_struct("Deliverer").field("integration", integration).finish_non_exhaustive()
    }
}

#[async_trait]
impl Processor for Deliverer {
    async fn process(&self, job: Job) -> Result<(), JobFailure> {
        let Some(name) = JobName::parse(job.id()) else { return self.deliver_foreign(&job).await };
        match self.reader.ask(name.message).await {
            Some(open) if open.number == name.dispatch && self.serves(&open.message) => {
                self.deliver_own(&job, name, open.message).await
            }
            // Settled, cancelled, sent elsewhere by hand, or dispatched again: there is nothing to
            // deliver for it.
            Some(_) => Ok(()),
            None if names(job.data(), name.message) => Ok(()),
            None => self.deliver_foreign(&job).await,
        }
    }
}

impl Deliverer {
    fn serves(&self, message: &Message) -> bool {
        message.integration == self.shared.lanes[self.lane].lane.integration
    }

    async fn deliver_own(
        &self,
        job: &Job,
        name: JobName,
        message: Message,
    ) -> Result<(), JobFailure> {
        self.wait_for_turn(job, message.tenant_id.as_deref())?;
        tracing::debug!(
            operation = "OUTBOX_DELIVER",
            phase = "START",
            id = %message.id,
            event_id = message.event_id,
            integration = message.integration,
            dispatch = name.dispatch,
        );
        let began = Instant::now();
        let outcome = self.deliver(&message).await;
        let state = &self.shared.lanes[self.lane];
        state.pauses.heard(&outcome);
        if let Outcome::Refuse { .. } = outcome {
            // The job waits in its queue until the lane goes on; no attempt is used.
            return Err(JobFailure::Later(state.pauses.left().unwrap_or_default()));
        }
        let fate = judge(
            &state.lane.retry,
            self.shared.settings.dead_letter.as_deref(),
            &message,
            outcome,
            began.elapsed(),
            &self.shared.chance,
        );
        let ending = ending(&fate);
        let word = Word { message, dispatch: name.dispatch, fate };
        match self.settler.ask(word).await {
            Said::Recorded => ending,
            // Somebody else has settled it.
            Said::Late => Ok(()),
            Said::Refused => Err(JobFailure::Failed {
                reason: "the database refuses the outcome; the message is delivered again"
                    .to_owned(),
            }),
        }
    }

    /// A job without a message in the outbox is delivered from its data, and ends in BullMQ alone.
    async fn deliver_foreign(&self, job: &Job) -> Result<(), JobFailure> {
        let integration = &self.shared.lanes[self.lane].lane.integration;
        let message = foreign(integration, job.id(), job.name(), job.data());
        self.wait_for_turn(job, message.tenant_id.as_deref())?;
        let outcome = self.deliver(&message).await;
        let pauses = &self.shared.lanes[self.lane].pauses;
        pauses.heard(&outcome);
        match outcome {
            Outcome::Delivered => Ok(()),
            Outcome::Retry { error, .. } => Err(JobFailure::Failed { reason: error }),
            Outcome::Reject { error } | Outcome::Gone { error } => {
                Err(JobFailure::Unrecoverable { reason: error })
            }
            Outcome::Refuse { .. } => Err(JobFailure::Later(pauses.left().unwrap_or_default())),
        }
    }

    fn wait_for_turn(&self, job: &Job, tenant: Option<&str>) -> Result<(), JobFailure> {
        let paused = self.shared.lanes[self.lane].pauses.left();
        let wait = paused.or_else(|| self.shared.turns.wait(job.id(), tenant));
        // BullMQ counts in milliseconds, and a job must not come back too early.
        wait.map_or(Ok(()), |wait| Err(JobFailure::Later(wait + Duration::from_millis(1))))
    }

    /// One sink call for one message. Whatever it does, there is an outcome.
    async fn deliver(&self, message: &Message) -> Outcome {
        let first = FirstWord::default();
        let limit = self.delivery.timeout;
        let began = Instant::now();
        let missing = {
            let report = Report::new(&first);
            let batch = std::slice::from_ref(message);
            let call = AssertUnwindSafe(self.delivery.sink.deliver(batch, &report)).catch_unwind();
            match tokio::time::timeout(limit, call).await {
                Ok(Ok(())) => "the sink reported no outcome".to_owned(),
                Ok(Err(panic)) => panicked(&*panic),
                Err(_) => unanswered(limit),
            }
        };
        self.shared.metrics.delivery_took(&message.integration, began.elapsed());
        first
            .0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .unwrap_or(Outcome::retry(missing))
    }
}

/// How the job ends in BullMQ once the outbox knows.
fn ending(fate: &Fate) -> Result<(), JobFailure> {
    match fate {
        Fate::Sent | Fate::Released => Ok(()),
        Fate::Failed { error, .. } => Err(JobFailure::Failed { reason: error.clone() }),
        Fate::Dead { error, .. } => Err(JobFailure::Unrecoverable { reason: error.clone() }),
    }
}

/// Keeps the first word on the one message of a call.
#[derive(Default)]
struct FirstWord(Mutex<Option<Outcome>>);

impl OutcomeReceiver for FirstWord {
    fn outcome(&self, _: usize, outcome: Outcome) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
    }
}
