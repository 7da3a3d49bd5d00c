//! Takes due messages for every lane with room, and hands them over to their queues as jobs.

use super::conclude::conclude;
use super::faults::Who;
use super::names::JobName;
use super::postponing::Postponing;
use super::queues::Queues;
use super::settler::{Said, Settler, Word};
use super::shared::{CONFLICTS_AT_ONCE, Shared};
use crate::queue::{Added, JobState, NewJob, Queue};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use postroom_core::{
    Batch, Fate, Fence, Outcome, Quota, Settlement, StoreResult, Take, Taken, Token, Verdict, Wake,
};
use postroom_relay::{Backoff, Heat, JobOutcome, dead, describe, judge};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The most bytes of content taken at once.
const TAKE_BYTES: usize = 4 << 20;
/// How often to look for messages that another relay has lost.
const RESCUED_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for room before looking again.
const ROOM_WAIT: Duration = Duration::from_millis(100);

pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    settler: Settler,
    queues: Arc<Queues>,
    postponing: Postponing,
}

/// What came of looking for due messages.
enum Found {
    Nothing,
    Some,
    /// As many as were asked for: there may be more.
    Full,
    NoRoom,
}

impl Dispatcher {
    pub(crate) fn new(shared: Arc<Shared>, settler: Settler, queues: Arc<Queues>) -> Self {
        let postponing = Postponing::new(shared.settings.claim_time);
        Self { shared, settler, queues, postponing }
    }

    /// Dispatches until it is told to stop, and ends between two batches.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut wake = self.shared.store.wake().await;
        let mut heat = Heat::new();
        let mut backoff = Backoff::new();
        let mut rescued_at = None;
        while !*stop.borrow() {
            let found = match self.look(&mut rescued_at).await {
                Ok(found) => {
                    backoff.reset();
                    found
                }
                Err(Hindrance::Redis) => {
                    self.wait_for_redis(&mut backoff, &mut stop).await;
                    continue;
                }
                Err(Hindrance::Database) => {
                    pause(backoff.pause(&self.shared.chance), &mut stop).await;
                    continue;
                }
            };
            match found {
                Found::Full => {
                    if heat.found(true, Instant::now()) {
                        busy(&mut wake, true).await;
                    }
                }
                Found::NoRoom => {
                    let freed = self.shared.books.freed.notified();
                    let _ = tokio::time::timeout(ROOM_WAIT, freed).await;
                }
                Found::Some | Found::Nothing => {
                    let now = Instant::now();
                    if matches!(found, Found::Some) {
                        if heat.found(false, now) {
                            busy(&mut wake, true).await;
                        }
                    } else if heat.found_nothing(now) {
                        busy(&mut wake, false).await;
                        continue;
                    }
                    let wait = self.wait(&mut wake, heat.is_hot());
                    tokio::select! {
                        biased;
                        _ = stop.wait_for(|stop| *stop) => {}
                        () = wait => {}
                    }
                }
            }
        }
    }

    async fn wait(&self, wake: &mut Option<Box<dyn Wake>>, is_hot: bool) {
        let poll = self.shared.settings.poll_interval;
        match wake {
            _ if is_hot => tokio::time::sleep(Heat::LOOK.min(poll)).await,
            Some(wake) => {
                let _ = tokio::time::timeout(poll, wake.woken()).await;
            }
            None => tokio::time::sleep(poll).await,
        }
    }

    /// Nothing is taken until Redis answers again.
    async fn wait_for_redis(&self, backoff: &mut Backoff, stop: &mut watch::Receiver<bool>) {
        pause(backoff.pause(&self.shared.chance), stop).await;
        match self.shared.redis.probe().await {
            Ok(()) => self.shared.redis_outage.end(),
            Err(error) => self.shared.redis_away(&error),
        }
    }

    async fn look(&self, rescued_at: &mut Option<Instant>) -> Result<Found, Hindrance> {
        if self.shared.redis_outage.error().is_some() {
            return Err(Hindrance::Redis);
        }
        let quotas = self.quotas();
        if quotas.is_empty() {
            return Ok(Found::NoRoom);
        }
        if rescued_at.is_none_or(|at| at.elapsed() >= RESCUED_EVERY) {
            *rescued_at = Some(Instant::now());
            // Lost by a relay that delivered directly: in a queue it harms nobody.
            let alone: Vec<Quota> =
                quotas.iter().map(|quota| Quota { rows: 1, ..quota.clone() }).collect();
            let batches = self.taking(self.shared.store.take_rescued(&self.wish(&alone))).await?;
            let mut handed = Ok(());
            for batch in batches {
                *rescued_at = None;
                // Once one could not be handed over, the others are given back at once.
                match handed {
                    Ok(()) => handed = self.hand_over(batch).await,
                    Err(_) => self.give_back(batch.token, &batch.messages).await,
                }
            }
            handed?;
        }
        // What was rescued may have taken the last room.
        let quotas = self.quotas();
        if quotas.is_empty() {
            return Ok(Found::NoRoom);
        }
        let began = Instant::now();
        let Some(batch) = self.taking(self.shared.store.take(&self.wish(&quotas))).await? else {
            return Ok(Found::Nothing);
        };
        self.shared.metrics.claim_took(began.elapsed());
        let wanted: usize = quotas.iter().map(|quota| quota.rows).sum();
        let found = if batch.messages.len() >= wanted { Found::Full } else { Found::Some };
        self.hand_over(batch).await?;
        Ok(found)
    }

    /// How many messages each lane may have now. One with a single queue has as many as there is room
    /// for, in batches and not one by one. Where each tenant has a queue, whose messages come next is
    /// known only once they are taken: even where every queue that is known is full, they may be a
    /// tenant's whose queue is not.
    fn quotas(&self) -> Vec<Quota> {
        let mut quotas = Vec::new();
        for (index, state) in self.shared.lanes.iter().enumerate() {
            let outstanding = self.shared.books.of_lane(index);
            self.shared.metrics.jobs_outstanding(&state.lane.integration, outstanding);
            let lane = &state.lane;
            let room = if lane.queue.is_by_tenant() {
                lane.outstanding_max
            } else {
                self.room(index, &lane.queue.name(&lane.integration, None))
            };
            let rows = room.min(self.shared.settings.batch_size);
            if rows > 0 && room * 4 >= lane.outstanding_max && !state.pauses.is_paused() {
                quotas.push(Quota { integration: lane.integration.clone(), rows });
            }
        }
        quotas
    }

    /// How many more jobs a lane may add to a queue: none to one that could not take any just now.
    fn room(&self, lane: usize, queue: &str) -> usize {
        if self.shared.faults.is_held(queue) {
            return 0;
        }
        let most = self.shared.lanes[lane].lane.outstanding_max;
        most.saturating_sub(self.shared.books.in_queue(queue))
    }

    fn wish<'a>(&'a self, quotas: &'a [Quota]) -> Take<'a> {
        let settings = &self.shared.settings;
        Take {
            worker: &settings.worker,
            quotas,
            rows: quotas.iter().map(|quota| quota.rows).sum(),
            bytes: TAKE_BYTES,
            payload_limit: settings.payload_limit,
            claim_time: settings.claim_time,
            lease: Some(self.shared.lease),
        }
    }

    async fn taking<T>(&self, take: impl Future<Output = StoreResult<T>>) -> Result<T, Hindrance> {
        match take.await {
            Ok(taken) => {
                self.shared.database_outage.end();
                Ok(taken)
            }
            Err(error) => {
                tracing::debug!(
                    operation = "OUTBOX_CLAIM",
                    phase = "FAILED",
                    error = describe(&error)
                );
                self.shared.database_away(&error);
                Err(Hindrance::Database)
            }
        }
    }

    /// Makes a job of every message of a batch whose queue has room, and puts off the others. What
    /// the queues cannot take now is given back.
    async fn hand_over(&self, batch: Batch) -> Result<(), Hindrance> {
        let token = batch.token;
        let mut by_queue: BTreeMap<(usize, String), Vec<Taken>> = BTreeMap::new();
        let mut aside = Vec::new();
        for taken in batch.messages {
            let message = &taken.message;
            match (self.shared.lane(&message.integration), &taken.fault) {
                (Some(lane), None) => {
                    let queue = self.shared.lanes[lane].lane.queue.of(message);
                    by_queue.entry((lane, queue)).or_default().push(taken);
                }
                // Sent elsewhere by hand just now: that lane's relay takes it.
                (None, _) => aside.push(verdict(&taken, Fate::Released)),
                (Some(_), Some(fault)) => {
                    let letter = self.shared.settings.dead_letter.as_deref();
                    let fate = dead(letter, message, fault.to_string(), None);
                    aside.push(verdict(&taken, fate));
                }
            }
        }
        by_queue.retain(|(lane, queue), messages| {
            aside.extend(self.put_off(*lane, queue, messages));
            !messages.is_empty()
        });
        if !aside.is_empty() {
            self.settle_claim(token, aside, by_queue.is_empty()).await;
        }
        let mut adding = Vec::with_capacity(by_queue.len());
        for ((lane, queue), messages) in by_queue {
            adding.push(self.add(token, lane, queue, messages).boxed());
        }
        join_all(adding).await.into_iter().collect()
    }

    /// Takes those messages out that a queue has no room for; they are due again later.
    fn put_off(&self, lane: usize, queue: &str, messages: &mut Vec<Taken>) -> Vec<Verdict> {
        let room = self.room(lane, queue);
        if messages.len() <= room {
            return Vec::new();
        }
        let full = messages.split_off(room);
        let drained = self.shared.books.drained(lane, queue);
        let delays = self.postponing.put_off(queue, full.len(), drained);
        let integration = &self.shared.lanes[lane].lane.integration;
        self.shared.metrics.jobs(integration, JobOutcome::POSTPONED, full.len() as u64);
        tracing::debug!(
            operation = "OUTBOX_ENQUEUE_JOB",
            phase = "POSTPONED",
            queue,
            count = full.len(),
            "the queue has no room: due again in {:.1?} at the latest",
            delays.last().copied().unwrap_or_default()
        );
        let fates = delays.into_iter().map(|delay| Fate::Postponed { delay });
        full.iter().zip(fates).map(|(taken, fate)| verdict(taken, fate)).collect()
    }

    async fn add(
        &self,
        token: Token,
        lane: usize,
        name: String,
        messages: Vec<Taken>,
    ) -> Result<(), Hindrance> {
        let settings = &self.shared.lanes[lane].lane;
        let integration = &settings.integration;
        let count = messages.len() as u64;
        self.shared.metrics.taken(integration, count);
        tracing::debug!(operation = "OUTBOX_CLAIM", phase = "SUCCESS", integration, count);
        let keep_finished = matches!(settings.workers, super::lanes::Workers::External);
        let jobs: Vec<(JobName, NewJob)> = messages
            .iter()
            .map(|taken| {
                let name = JobName { message: taken.message.id, dispatch: taken.dispatch };
                let job = NewJob {
                    id: name.id(),
                    name: taken.message.event_type.clone(),
                    data: settings.data.of(&taken.message),
                    keep_finished,
                };
                (name, job)
            })
            .collect();
        // Before they are added: their end may be heard of at once.
        for (job, _) in &jobs {
            self.shared.books.add(*job, lane, &name, token);
        }
        tracing::debug!(operation = "OUTBOX_ENQUEUE_JOB", phase = "START", queue = name, count);
        let new: Vec<NewJob> = jobs.iter().map(|(_, job)| job.clone()).collect();
        let added = async {
            let queue = self.queues.open(lane, &name)?;
            let added = queue.add(&new).await?;
            Ok((queue, added))
        };
        let (queue, added) = match added.await {
            Ok(added) => added,
            Err(error) => {
                let error: crate::error::QueueError = error;
                tracing::debug!(
                    operation = "OUTBOX_ENQUEUE_JOB",
                    phase = "FAILED",
                    queue = name,
                    error = describe(&error)
                );
                self.shared.redis_fails(&name, Who::Dispatcher, &error);
                self.give_back(token, &messages).await;
                // What only this queue has is no matter of the others.
                return if error.is_away() { Err(Hindrance::Redis) } else { Ok(()) };
            }
        };
        self.shared.faults.end(&name, Who::Dispatcher);
        self.note(lane, &queue, &messages, &added).await;
        Ok(())
    }

    /// Sees to what is no new job: one that exists is looked at, one that is refused has failed.
    async fn note(&self, lane: usize, queue: &Queue, messages: &[Taken], added: &[Added]) {
        let integration = &self.shared.lanes[lane].lane.integration;
        let mut existing = Vec::new();
        let (mut new, mut refused) = (0, Vec::new());
        for (taken, added) in messages.iter().zip(added) {
            let name = JobName { message: taken.message.id, dispatch: taken.dispatch };
            match added {
                Added::New => {
                    self.shared.books.added(name);
                    new += 1;
                }
                Added::Exists => {
                    self.shared.books.added(name);
                    existing.push(name);
                }
                Added::Refused(reason) => refused.push((taken, reason)),
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
            self.look_at(queue, &existing).await;
        }
        let mut failures = Vec::with_capacity(refused.len());
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
                &self.shared.chance,
            );
            let name = JobName { message: taken.message.id, dispatch: taken.dispatch };
            let message = taken.message.clone();
            let said = self.settler.ask(Word { message, dispatch: taken.dispatch, fate });
            failures.push(said.map(move |said| (name, said)).boxed());
        }
        for (name, said) in join_all(failures).await {
            // There is no job, nor a word: nothing but the end of the claim brings it back.
            if said == Said::Refused {
                self.shared.books.settled(name);
            }
        }
    }

    /// A job of this number was there before: it goes on if it waits or runs, and says how it ended
    /// if it has. What goes wrong here the sweep sees to.
    async fn look_at(&self, queue: &Queue, names: &[JobName]) {
        let ids: Vec<String> = names.iter().map(|name| name.id()).collect();
        let states = match queue.states(&ids).await {
            Ok(states) => states,
            Err(error) => {
                return self.shared.redis_fails(queue.name(), Who::Dispatcher, &error);
            }
        };
        let found: Vec<(JobName, JobState)> = names.iter().copied().zip(states).collect();
        let over = conclude(&self.shared, &self.settler, queue.name(), &found).await;
        if let Err(error) = queue.remove(&over).await {
            self.shared.redis_fails(queue.name(), Who::Dispatcher, &error);
        }
    }

    /// Lets go of messages whose jobs may or may not have been added: the number stays, so that
    /// such a job is found.
    async fn give_back(&self, token: Token, messages: &[Taken]) {
        let verdicts = messages.iter().map(|taken| verdict(taken, Fate::Released)).collect();
        self.settle_claim(token, verdicts, true).await;
        for taken in messages {
            let name = JobName { message: taken.message.id, dispatch: taken.dispatch };
            self.shared.books.settled(name);
        }
    }

    /// Records what is known of messages of a claim. What cannot be recorded, since somebody else has
    /// locked it or the database refuses it, is free when the claim ends: nobody waits for it here.
    async fn settle_claim(&self, token: Token, verdicts: Vec<Verdict>, finished: bool) {
        let settle = async |settlement: Settlement, patience| {
            let settlement = [settlement];
            let settling = || self.shared.store.settle(&settlement);
            self.shared.insist_unless_locked(settling, Some(patience)).await
        };
        let fence = Fence::Claim(token);
        let all = Settlement { fence, verdicts: verdicts.clone(), finished };
        if settle(all, CONFLICTS_AT_ONCE).await.is_ok() {
            return;
        }
        for verdict in verdicts {
            let id = verdict.id;
            let alone = Settlement { fence, verdicts: vec![verdict], finished: false };
            if let Err(error) = settle(alone, 0).await {
                let error = describe(&error);
                tracing::warn!(%id, error, "this message stays claimed until its claim ends");
            }
        }
        let end = Settlement { fence, verdicts: Vec::new(), finished };
        if finished && let Err(error) = settle(end, 0).await {
            tracing::debug!(error = describe(&error), "a claim stays until it expires");
        }
    }
}

/// Why nothing can be dispatched now.
enum Hindrance {
    Redis,
    Database,
}

fn verdict(taken: &Taken, fate: Fate) -> Verdict {
    Verdict { seq: taken.message.seq, id: taken.message.id, fate }
}

async fn busy(wake: &mut Option<Box<dyn Wake>>, busy: bool) {
    if let Some(wake) = wake {
        wake.busy(busy).await;
    }
}

async fn pause(pause: Duration, stop: &mut watch::Receiver<bool>) {
    let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
}
