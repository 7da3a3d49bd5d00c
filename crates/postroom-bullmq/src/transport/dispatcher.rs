//! Takes due messages for every lane with room, and hands them over to their queues as jobs.

use super::names::JobName;
use super::postponing::Postponing;
use super::queues::Queues;
use super::settler::Settler;
use super::shared::Shared;
use super::unqueued::Unqueued;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use postroom_core::{
    Batch, Fate, Quota, Rescued, StoreErrorKind, StoreResult, Take, Taken, Token, Verdict, Wake,
    with_causes,
};
use postroom_relay::{Backoff, Heat, JobOutcome, dead};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    pub(super) shared: Arc<Shared>,
    pub(super) settler: Settler,
    pub(super) queues: Arc<Queues>,
    postponing: Postponing,
    pub(super) unqueued: Unqueued,
    /// Which lane is first: they take turns, since a batch has room for so many bytes.
    first: AtomicUsize,
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
        let unqueued = Unqueued::new(Arc::clone(&shared));
        Self { shared, settler, queues, postponing, unqueued, first: AtomicUsize::new(0) }
    }

    /// Dispatches until it is told to stop, and ends between two batches, once what was not queued is
    /// recorded.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut wake = self.shared.store.wake().await;
        let mut heat = Heat::new();
        let mut backoff = Backoff::new();
        let mut rescued_at = None;
        while !*stop.borrow() {
            self.unqueued.check();
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
                    pause(backoff.pause(&self.shared.jitter), &mut stop).await;
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
                    tokio::select! {
                        () = self.shared.outstanding.freed.notified() => {}
                        () = self.unqueued.freed() => {}
                        () = tokio::time::sleep(ROOM_WAIT) => {}
                    }
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
                        () = self.unqueued.freed() => {}
                        () = wait => {}
                    }
                }
            }
        }
        self.unqueued.drain().await;
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
        pause(backoff.pause(&self.shared.jitter), stop).await;
        match self.shared.redis.probe().await {
            Ok(()) => self.shared.redis_outage.end(),
            Err(error) => self.shared.redis_away(&error),
        }
    }

    async fn look(&self, rescued_at: &mut Option<Instant>) -> Result<Found, Hindrance> {
        if self.shared.redis_outage.error().is_some() {
            return Err(Hindrance::Redis);
        }
        self.first.fetch_add(1, Ordering::Relaxed);
        let quotas = self.quotas();
        if quotas.is_empty() {
            return Ok(Found::NoRoom);
        }
        if rescued_at.is_none_or(|at| at.elapsed() >= RESCUED_EVERY) {
            *rescued_at = Some(Instant::now());
            // Lost by a relay that delivered directly: in a queue it harms nobody.
            let wish = self.wish(&quotas);
            let taking = self.shared.store.take_rescued(&wish, Rescued::Together);
            let batches = self.taking(taking).await?;
            if !batches.is_empty() {
                *rescued_at = None;
            }
            self.hand_over_all(batches).await?;
        }
        // What was rescued may have taken the last room.
        let quotas = self.quotas();
        if quotas.is_empty() {
            return Ok(Found::NoRoom);
        }
        let began = Instant::now();
        let batches = self.taking(self.shared.store.take(&self.wish(&quotas))).await?;
        postroom_relay::warn_of_vanished(&*self.shared.store, &self.shared.metrics);
        if batches.is_empty() {
            return Ok(Found::Nothing);
        }
        self.shared.metrics.claim_took(began.elapsed());
        let is_full = has_full_lane(&quotas, &batches);
        self.hand_over_all(batches).await?;
        Ok(if is_full { Found::Full } else { Found::Some })
    }

    /// Once a batch could not be handed over, the others are given back at once.
    async fn hand_over_all(&self, batches: Vec<Batch>) -> Result<(), Hindrance> {
        let mut handed = Ok(());
        for batch in batches {
            match handed {
                Ok(()) => handed = self.hand_over(batch).await,
                Err(_) => self.give_back(batch.token, &batch.messages),
            }
        }
        handed
    }

    /// How many messages each lane may have now. One with a single queue has as many as there is room
    /// for, in batches and not one by one. Where each tenant has a queue, whose messages come next is
    /// known only once they are taken: even where every queue that is known is full, they may be a
    /// tenant's whose queue is not.
    fn quotas(&self) -> Vec<Quota> {
        let mut quotas = Vec::new();
        let (lanes, first) = (&self.shared.lanes, self.first.load(Ordering::Relaxed));
        for index in (0..lanes.len()).map(|place| first.wrapping_add(place) % lanes.len()) {
            let state = &lanes[index];
            let outstanding = self.shared.outstanding.of_lane(index);
            self.shared.metrics.jobs_outstanding(&state.lane.integration, outstanding);
            let lane = &state.lane;
            let room = if lane.queue.is_by_tenant() {
                lane.outstanding_max
            } else {
                self.room(index, &lane.queue.name(&lane.integration, None))
            };
            let rows = room.min(self.shared.settings.batch_size);
            if rows > 0
                && room * 4 >= lane.outstanding_max
                && !state.pauses.is_paused()
                && !self.unqueued.is_full(index)
            {
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
        most.saturating_sub(self.shared.outstanding.in_queue(queue))
    }

    fn wish<'a>(&'a self, quotas: &'a [Quota]) -> Take<'a> {
        let settings = &self.shared.settings;
        Take {
            worker: &settings.worker,
            relay: self.shared.presence.id(),
            quotas,
            rows: quotas.iter().map(|quota| quota.rows).sum(),
            bytes: TAKE_BYTES,
            payload_limit: settings.payload_limit,
            for_queue: true,
        }
    }

    /// Takes under a heartbeat that is not overdue.
    async fn taking<T>(&self, take: impl Future<Output = StoreResult<T>>) -> Result<T, Hindrance> {
        let taken = match self.shared.presence.beat_if_overdue(&*self.shared.store).await {
            Ok(()) => take.await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(taken) => {
                self.shared.database_outage.end();
                Ok(taken)
            }
            Err(error) => {
                tracing::debug!(
                    operation = "OUTBOX_CLAIM",
                    phase = "FAILED",
                    error = with_causes(&error)
                );
                match error.kind {
                    // A deadlock, say: the next look goes through. Or the relay's row is gone, and
                    // this process does not know.
                    StoreErrorKind::Conflict => self.shared.presence.doubt(),
                    StoreErrorKind::Unavailable
                    | StoreErrorKind::Schema
                    | StoreErrorKind::Refused => self.shared.database_away(&error),
                }
                Err(Hindrance::Database)
            }
        }
    }

    /// Makes a job of every message of a batch whose queue has room, and puts off the others. What
    /// the queues cannot take now is given back.
    async fn hand_over(&self, batch: Batch) -> Result<(), Hindrance> {
        let token = batch.token;
        let mut by_queue: BTreeMap<(usize, String), Vec<Taken>> = BTreeMap::new();
        let mut unqueued = Vec::new();
        for taken in batch.messages {
            let message = &taken.message;
            match (self.shared.lane(&message.integration), &taken.fault) {
                (Some(lane), None) => {
                    let queue = self.shared.lanes[lane].lane.queue.of(message);
                    by_queue.entry((lane, queue)).or_default().push(taken);
                }
                // Sent elsewhere by hand just now: that lane's relay takes it.
                (None, _) => unqueued.push((None, verdict(&taken, Fate::Released))),
                (Some(lane), Some(fault)) => {
                    let letter = self.shared.settings.dead_letter.as_deref();
                    let fate = dead(letter, message, fault.to_string(), None);
                    unqueued.push((Some(lane), verdict(&taken, fate)));
                }
            }
        }
        // Queues of two lanes may be the same one.
        let mut planned: HashMap<String, usize> = HashMap::new();
        by_queue.retain(|(lane, queue), messages| {
            let planned = planned.entry(queue.clone()).or_default();
            let room = self.room(*lane, queue).saturating_sub(*planned);
            let room = if room > 0 && self.queues.reserve(*lane, queue) { room } else { 0 };
            let put_off = self.put_off(*lane, queue, messages, room);
            *planned += messages.len();
            unqueued.extend(put_off.into_iter().map(|verdict| (Some(*lane), verdict)));
            !messages.is_empty()
        });
        if !unqueued.is_empty() {
            self.unqueued.settle(token, unqueued, by_queue.is_empty());
        }
        let mut adding = Vec::with_capacity(by_queue.len());
        for ((lane, queue), messages) in by_queue {
            adding.push(self.add(token, lane, queue, messages).boxed());
        }
        join_all(adding).await.into_iter().collect()
    }

    /// Takes those messages out that a queue has no room for; they are due again later.
    fn put_off(
        &self,
        lane: usize,
        queue: &str,
        messages: &mut Vec<Taken>,
        room: usize,
    ) -> Vec<Verdict> {
        if messages.len() <= room {
            return Vec::new();
        }
        let full = messages.split_off(room);
        let drained = self.shared.outstanding.drained(lane, queue);
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

    /// Lets go of messages whose jobs may or may not have been added: the number stays, so that
    /// such a job is found.
    pub(super) fn give_back(&self, token: Token, messages: &[Taken]) {
        self.let_go(token, messages, &Fate::Released);
    }

    pub(super) fn let_go(&self, token: Token, messages: &[Taken], fate: &Fate) {
        let mut verdicts = Vec::with_capacity(messages.len());
        for taken in messages {
            // Before it is free: it may be taken again at once.
            self.shared.outstanding.settled(&JobName::of(taken));
            let lane = self.shared.lane(&taken.message.integration);
            verdicts.push((lane, verdict(taken, fate.clone())));
        }
        self.unqueued.settle(token, verdicts, true);
    }
}

/// Why nothing can be dispatched now.
pub(super) enum Hindrance {
    Redis,
    Database,
}

fn verdict(taken: &Taken, fate: Fate) -> Verdict {
    Verdict { seq: taken.message.seq, id: taken.message.id.clone(), fate }
}

/// Whether a lane was given so much that it may have more, however little the others have. Half of what it asked for
/// is enough to look again: what is stored together is given out together, and the next may not have fitted.
fn has_full_lane(quotas: &[Quota], batches: &[Batch]) -> bool {
    quotas.iter().any(|quota| {
        let taken = batches.iter().flat_map(|batch| &batch.messages);
        let of_lane = taken.filter(|taken| taken.message.integration == quota.integration);
        of_lane.count() * 2 > quota.rows
    })
}

async fn busy(wake: &mut Option<Box<dyn Wake>>, busy: bool) {
    if let Some(wake) = wake {
        wake.busy(busy).await;
    }
}

async fn pause(pause: Duration, stop: &mut watch::Receiver<bool>) {
    let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
}
