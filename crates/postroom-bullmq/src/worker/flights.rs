//! The jobs that a worker has taken, from the moment it gets one until BullMQ knows its end.

use crate::queue::Queue;
use bullmq::Error;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often to look whether something is to be done.
const LOOK: Duration = Duration::from_millis(250);
/// After so long without a word BullMQ's client has given up on the end of a job.
const FINISH_MAX: Duration = Duration::from_secs(12);

/// The jobs under way.
pub(super) struct Flights {
    queue: Queue,
    lock_time: Duration,
    state: Mutex<State>,
    landed: Notify,
}

#[derive(Default)]
struct State {
    /// By the job's id.
    jobs: HashMap<String, Flight>,
    number: u64,
    is_closed: bool,
    /// When BullMQ's client last said that something failed.
    failed_at: Option<Instant>,
}

struct Flight {
    /// Tells a job from a later run of the same one.
    number: u64,
    job: Arc<bullmq::Job>,
    stage: Stage,
    lost: watch::Sender<bool>,
    renewed_at: Instant,
}

enum Stage {
    /// The processor has it; this calls it back.
    Running(Option<oneshot::Sender<()>>),
    /// It has succeeded, and BullMQ's client is to complete it.
    Completing(Instant),
    /// Its end is being told to BullMQ by ourselves.
    Ending,
}

/// A job's start.
pub(super) struct Started {
    pub(super) number: u64,
    pub(super) lost: watch::Receiver<bool>,
    /// Resolves when the job has to go back.
    pub(super) recalled: oneshot::Receiver<()>,
    /// Whether the worker is about to stop: the job goes back at once.
    pub(super) is_late: bool,
}

impl Flights {
    pub(super) fn new(queue: &Queue, lock_time: Duration) -> Self {
        let (queue, state) = (queue.clone(), Mutex::default());
        Self { queue, lock_time, state, landed: Notify::new() }
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn lock_time(&self) -> Duration {
        self.lock_time
    }

    pub(super) fn start(&self, job: &Arc<bullmq::Job>) -> Started {
        let (recall, recalled) = oneshot::channel();
        let (lost, is_lost) = watch::channel(false);
        let mut state = self.state();
        state.number += 1;
        let (number, is_late) = (state.number, state.is_closed);
        let flight = Flight {
            number,
            job: Arc::clone(job),
            stage: Stage::Running(Some(recall)),
            lost,
            renewed_at: Instant::now(),
        };
        // The same job again: we have lost it, and got it again.
        if let Some(earlier) = state.jobs.insert(job.id().to_owned(), flight) {
            earlier.lost.send_replace(true);
        }
        Started { number, lost: is_lost, recalled, is_late }
    }

    /// The processor has succeeded; BullMQ's client completes the job.
    pub(super) fn completing(&self, job_id: &str, number: u64) {
        self.change(job_id, number, |flight| flight.stage = Stage::Completing(Instant::now()));
    }

    /// The processor is done; we tell BullMQ how.
    pub(super) fn ending(&self, job_id: &str, number: u64) {
        self.change(job_id, number, |flight| flight.stage = Stage::Ending);
    }

    fn change(&self, job_id: &str, number: u64, change: impl FnOnce(&mut Flight)) {
        let mut state = self.state();
        if let Some(flight) = state.jobs.get_mut(job_id).filter(|flight| flight.number == number) {
            change(flight);
        }
    }

    /// The job is over, as far as this worker is concerned.
    pub(super) fn land(&self, job_id: &str, number: u64) {
        let mut state = self.state();
        if state.jobs.get(job_id).is_some_and(|flight| flight.number == number) {
            state.jobs.remove(job_id);
            self.landed.notify_one();
        }
    }

    /// BullMQ's client has finished the job, or will not any more.
    pub(super) fn concluded(&self, job_id: &str) {
        let mut state = self.state();
        let is_completing = |flight: &Flight| matches!(flight.stage, Stage::Completing(_));
        if state.jobs.get(job_id).is_some_and(is_completing) {
            state.jobs.remove(job_id);
            self.landed.notify_one();
        }
    }

    /// BullMQ's client says that something failed, and not what.
    pub(super) fn note_failure(&self) {
        self.state().failed_at = Some(Instant::now());
    }

    /// From now on, jobs go back at once.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
    }

    /// Calls back every job that runs, and says how many.
    pub(super) fn recall(&self) -> usize {
        let mut state = self.state();
        let recall = |flight: &mut Flight| match &mut flight.stage {
            Stage::Running(recall) => recall.take().is_some_and(|recall| recall.send(()).is_ok()),
            Stage::Completing(_) | Stage::Ending => false,
        };
        state.jobs.values_mut().map(recall).filter(|is_recalled| *is_recalled).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    /// Resolves when a job is over.
    pub(super) async fn landed(&self) {
        self.landed.notified().await;
    }

    /// Renews locks, and completes what BullMQ's client could not; for as long as it is polled.
    pub(super) async fn keep(&self) {
        let mut ticks = interval(LOOK.min(self.lock_time / 6));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.renew().await;
            self.complete_again().await;
        }
    }

    async fn renew(&self) {
        let due: Vec<(u64, Arc<bullmq::Job>)> = {
            let mut state = self.state();
            let is_due = |flight: &&mut Flight| flight.renewed_at.elapsed() >= self.lock_time / 3;
            let due = state.jobs.values_mut().filter(is_due);
            due.map(|flight| {
                flight.renewed_at = Instant::now();
                (flight.number, Arc::clone(&flight.job))
            })
            .collect()
        };
        let lock_ms = u64::try_from(self.lock_time.as_millis()).unwrap_or(u64::MAX);
        let mut renewals: FuturesUnordered<_> = due
            .into_iter()
            .map(|(number, job)| async move {
                let token = job.token().unwrap_or_default();
                let renewed = job.extend_lock(token, lock_ms).await;
                (number, renewed, job)
            })
            .collect();
        while let Some((number, renewed, job)) = renewals.next().await {
            match renewed {
                Ok(()) => {}
                Err(Error::JobLocked(_)) => self.lose(job.id(), number),
                Err(error) => {
                    let queue = self.queue.name();
                    tracing::warn!(queue, job = job.id(), %error, "lock could not be renewed");
                }
            }
        }
    }

    fn lose(&self, job_id: &str, number: u64) {
        let mut state = self.state();
        let Some(flight) = state.jobs.get(job_id).filter(|flight| flight.number == number) else {
            return;
        };
        match flight.stage {
            Stage::Running(_) => {
                let was_lost = flight.lost.send_replace(true);
                if !was_lost {
                    tracing::warn!(queue = self.queue.name(), job = job_id, "lock was lost");
                }
            }
            // It had ended while its lock was being renewed, or is another's to end.
            Stage::Completing(_) => {
                state.jobs.remove(job_id);
                self.landed.notify_one();
            }
            Stage::Ending => {}
        }
    }

    async fn complete_again(&self) {
        let stranded: Vec<(u64, Arc<bullmq::Job>)> = {
            let state = self.state();
            let is_stranded = |flight: &&Flight| {
                let Stage::Completing(since) = flight.stage else { return false };
                let failed = |at: Instant| since <= at && at.elapsed() >= LOOK;
                since.elapsed() >= FINISH_MAX || state.failed_at.is_some_and(failed)
            };
            let stranded = state.jobs.values().filter(is_stranded);
            stranded.map(|flight| (flight.number, Arc::clone(&flight.job))).collect()
        };
        for (number, job) in stranded {
            if super::finish::complete(&self.queue, &job).await {
                self.land(job.id(), number);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
