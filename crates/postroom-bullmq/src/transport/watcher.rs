//! Hears what becomes of a queue's jobs: from its event stream, and from the jobs that are kept.

use super::faults::Who;
use super::finished_jobs::{record, settle_finished_jobs};
use super::names::JobName;
use super::settler::Settler;
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::{Event, EventKind, Events, FinishedPage, JobState, Position, Queue};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How many events are handled together, and how long the first of them waits for others.
const EVENTS_MAX: usize = 500;
const EVENTS_WAIT: Duration = Duration::from_millis(5);
/// How many kept jobs are looked at together.
const PAGE: usize = 500;
/// Looking at kept jobs may take this share of the time at most.
const LOOK_SHARE: u32 = 50;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) struct Watcher {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settler: Settler,
    pub(crate) queue: Queue,
}

impl Watcher {
    /// Watches until it is dropped. Begins where the one before has ended, and with the jobs that
    /// are kept: what was missed is seen there.
    pub(crate) async fn run(self) {
        let position = loop {
            match self.begin().await {
                Ok(position) => break position,
                Err(error) => self.wait_after(&error).await,
            }
        };
        let mut events = self.queue.events(position);
        let mut look_at = Instant::now() + self.shared.interval();
        loop {
            // First of all, since there may always be another event.
            let heard = if look_at <= Instant::now() {
                let began = Instant::now();
                let looked = self.look_at_kept().await;
                // Others may keep many jobs here.
                let pause = self.shared.interval().max(began.elapsed() * LOOK_SHARE);
                look_at = Instant::now() + pause;
                looked
            } else {
                match timeout_at(look_at, events.next()).await {
                    Ok(Ok(first)) => self.hear(gather(first, &mut events).await).await,
                    Ok(Err(error)) => Err(error),
                    Err(_) => continue,
                }
            };
            match heard {
                Ok(()) => self.shared.faults.end(self.queue.name(), Who::Watcher),
                Err(error) => self.wait_after(&error).await,
            }
        }
    }

    async fn wait_after(&self, error: &QueueError) {
        self.shared.redis_fails(self.queue.name(), Who::Watcher, error);
        tokio::time::sleep(PAUSE).await;
    }

    async fn begin(&self) -> Result<Position, QueueError> {
        let position = self.queue.stored_position().await?.unwrap_or(Position::START);
        self.look_at_kept().await?;
        Ok(position)
    }

    /// Settles and removes every finished job that is kept.
    async fn look_at_kept(&self) -> Result<(), QueueError> {
        let mut page = Some(FinishedPage::default());
        while let Some(this) = page {
            let finished = self.queue.finished(this, PAGE).await?;
            let found = finished
                .jobs
                .into_iter()
                .filter_map(|(id, state)| Some((JobName::parse(&id)?, state)))
                .collect();
            self.settle(found).await?;
            page = finished.next;
        }
        Ok(())
    }

    async fn hear(&self, events: Vec<Event>) -> Result<(), QueueError> {
        let last = events.last().map(|event| event.position.clone());
        let (mut completed, mut failed) = (Vec::new(), Vec::new());
        for event in events {
            let Some(name) = event.job_id.as_deref().and_then(JobName::parse) else { continue };
            match event.kind {
                EventKind::Completed if !self.shared.outstanding.is_settled_here(&name) => {
                    completed.push(name);
                }
                EventKind::Dropped => self.shared.outstanding.settled(&name),
                EventKind::Failed { .. } => failed.push(name),
                _ => {}
            }
        }
        self.hear_completed(completed).await?;
        self.hear_failed(failed).await?;
        match last {
            Some(position) => self.queue.store_position(&position).await,
            None => Ok(()),
        }
    }

    /// Jobs that somebody has completed: our workers, which settle before, or others. What is kept of
    /// a job says how. Of one that is gone the event is all that is left, and enough: no other job
    /// ever has its id.
    async fn hear_completed(&self, names: Vec<JobName>) -> Result<(), QueueError> {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (name, state) in self.look_at(names).await? {
            match state {
                JobState::Gone => gone.push((name, JobState::Completed)),
                // Somebody has it run again.
                JobState::Live => {}
                state => kept.push((name, state)),
            }
        }
        record(&self.shared, &self.settler, &self.queue, &gone).await?;
        self.settle(kept).await
    }

    async fn hear_failed(&self, names: Vec<JobName>) -> Result<(), QueueError> {
        // The job itself knows more than the event: whether another try is of any use. One that is
        // gone was settled and removed; if it was not, the sweep notices.
        let mut found = self.look_at(names).await?;
        found.retain(|(_, state)| *state != JobState::Gone);
        self.settle(found).await
    }

    async fn look_at(&self, names: Vec<JobName>) -> Result<Vec<(JobName, JobState)>, QueueError> {
        let ids: Vec<String> = names.iter().map(|name| name.id()).collect();
        let states = self.queue.states(&ids).await?;
        Ok(names.into_iter().zip(states).collect())
    }

    async fn settle(&self, found: Vec<(JobName, JobState)>) -> Result<(), QueueError> {
        let over = settle_finished_jobs(&self.shared, &self.settler, &self.queue, &found).await?;
        if over.is_empty() { Ok(()) } else { self.queue.remove(&over).await }
    }
}

/// An event, and what else comes within a moment.
async fn gather(first: Event, events: &mut Events) -> Vec<Event> {
    let mut gathered = vec![first];
    let until = Instant::now() + EVENTS_WAIT;
    while gathered.len() < EVENTS_MAX {
        match timeout_at(until, events.next()).await {
            Ok(Ok(event)) => gathered.push(event),
            // It is asked again, and says so again.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    gathered
}
