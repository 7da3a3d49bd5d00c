//! The relay: builds the stages, runs them, stops them.

use crate::claim_registry::{ClaimRegistry, OwnLanes};
use crate::claimer::{Claimer, Doors};
use crate::completer::Completion;
use crate::deadline::{DeadlineStore, Deadlines};
use crate::destinations::Destinations;
use crate::external_lanes::ExternalLanes;
use crate::health::{Board, Health, Observed};
use crate::heartbeat::{Member, Presence};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::polling::Backoff;
use crate::refused::Refusal;
use crate::responses::Responses;
use crate::room::LaneRoom;
use crate::settings::{Lane, Settings};
use crate::stop::{RECORD_LIMIT, Stop};
use crate::{
    completer, lane, monitor, pruner, reconciler, recorder, rescuer, schema, set_aside, summary,
};
use postroom_core::{Store, StoreError, StoreErrorKind, with_causes};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

/// How many settlements are recorded at once.
const COMPLETERS: usize = 2;

/// Delivers what is due in one store through its lanes.
pub struct Relay {
    shared: Arc<Shared>,
}

/// Why a relay stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The database cannot be used, and waiting does not help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stage of the relay panicked: a defect in Postroom. Nothing is lost; claims expire.
    #[error("the relay's {stage} ended unexpectedly: {cause}")]
    Defect {
        /// Which stage.
        stage: &'static str,
        /// The panic's message.
        cause: String,
    },
}

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Pass {
    /// Messages taken.
    pub taken: u64,
    /// Acknowledged.
    pub sent: u64,
    /// To be tried again.
    pub failed: u64,
    /// Dead.
    pub dead: u64,
    /// Given back untouched.
    pub released: u64,
}

/// What all stages share.
pub(crate) struct Shared {
    /// With deadlines; the same as `deadlines`, for whom it is just a store.
    pub(crate) store: Arc<dyn Store>,
    deadlines: Arc<DeadlineStore>,
    pub(crate) settings: Settings,
    pub(crate) lanes: Vec<Arc<LaneRoom>>,
    by_integration: HashMap<String, usize>,
    pub(crate) claims: Arc<ClaimRegistry>,
    /// What keeps claims.
    pub(crate) presence: Arc<Presence>,
    pub(crate) jitter: Jitter,
    pub(crate) metrics: Arc<Metrics>,
    /// Lanes of another transport.
    external: OnceLock<Arc<dyn ExternalLanes>>,
    pub(crate) board: Board,
    /// Some lane has room again.
    pub(crate) room_freed: Notify,
    /// The claimer found more than it could take at once.
    pub(crate) more_waits: Notify,
    /// Messages were rescued.
    pub(crate) rescued: Notify,
    /// There may be a rescued message that is to be handled alone.
    pub(crate) alone_waits: AtomicBool,
    pub(crate) due: DueTimes,
    pub(crate) tally: Tally,
    pub(crate) responses: Responses,
    /// Names the database in the log, where there are several.
    span: Span,
}

/// What was done since the relay was made.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) taken: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) dead: AtomicU64,
    pub(crate) released: AtomicU64,
}

impl Tally {
    fn read(&self) -> Pass {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Pass {
            taken: read(&self.taken),
            sent: read(&self.sent),
            failed: read(&self.failed),
            dead: read(&self.dead),
            released: read(&self.released),
        }
    }
}

impl Shared {
    /// What is done for this database, with its name in the log.
    pub(crate) fn in_span<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        work.instrument(self.span.clone())
    }

    pub(crate) fn lane(&self, integration: &str) -> Option<&Arc<LaneRoom>> {
        self.by_integration.get(integration).map(|index| &self.lanes[*index])
    }

    /// Whether anybody here delivers for this integration.
    pub(crate) fn is_routed(&self, integration: &str) -> bool {
        self.lane(integration).is_some()
            || self.external.get().is_some_and(|external| external.serves(integration))
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.lanes.iter().map(|room| room.in_hand()).sum()
    }

    /// Notes that there may be rescued messages, in any lane.
    pub(crate) fn expect_rescued(&self) {
        for room in &self.lanes {
            room.expect_rescued(true);
        }
        self.alone_waits.store(true, Ordering::Release);
    }

    /// Whether there may be rescued messages that are taken once there is room.
    pub(crate) fn expects_rescued(&self) -> bool {
        self.alone_waits.load(Ordering::Acquire)
            || self.lanes.iter().any(|room| room.expects_rescued())
    }

    /// What lanes hold, and what other transports have in their queues.
    pub(crate) fn in_flight(&self) -> usize {
        let external = self.external.get().map(|external| external.health());
        let external = external.into_iter().flatten().map(|lane| lane.in_flight);
        self.in_hand() + external.sum::<usize>()
    }

    pub(crate) fn any_lane_full(&self) -> bool {
        self.lanes.iter().any(|room| room.in_hand() > 0 && !room.has_room())
    }
}

/// When retries of this relay's own fall due, so that a long poll interval does not delay them.
#[derive(Debug, Default)]
pub(crate) struct DueTimes(Mutex<BinaryHeap<Reverse<Instant>>>);

impl DueTimes {
    /// More than this many are left to the poll.
    const MAX: usize = 4_096;

    pub(crate) fn push(&self, due: Instant) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() < Self::MAX {
            times.push(Reverse(due));
        }
    }

    /// The next due time, or `latest` if that is sooner. Forgets the times that have passed.
    pub(crate) fn next_before(&self, latest: Instant) -> Instant {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut next = latest;
        while let Some(Reverse(due)) = times.peek().copied() {
            if due >= latest {
                break;
            }
            next = next.min(due.max(now));
            if due > now {
                break;
            }
            times.pop();
        }
        next
    }
}

impl Relay {
    /// A relay that serves `lanes` from `store`. Nothing is connected to yet. Of two lanes for
    /// one integration the later counts.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, settings: Settings, lanes: Vec<Lane>) -> Self {
        let destinations = Destinations::new(lanes);
        let metrics = Metrics::of(None, Arc::clone(&destinations.families));
        Self::with(store, settings, &destinations, metrics, Span::none())
    }

    /// The relay of one database of several, which share their destinations. The log and the metrics
    /// call it by its name.
    #[must_use]
    pub fn of_database(
        name: &str,
        store: Arc<dyn Store>,
        settings: Settings,
        destinations: &Destinations,
    ) -> Self {
        let metrics = Metrics::of(Some(name.into()), Arc::clone(&destinations.families));
        // An error's span, so that no level of the log loses the name.
        let span = tracing::error_span!("outbox", database = name);
        Self::with(store, settings, destinations, metrics, span)
    }

    fn with(
        store: Arc<dyn Store>,
        settings: Settings,
        destinations: &Destinations,
        metrics: Metrics,
        span: Span,
    ) -> Self {
        let rooms: Vec<Arc<LaneRoom>> = destinations
            .each
            .iter()
            .map(|destination| Arc::new(LaneRoom::new(destination, settings.batch_size)))
            .collect();
        let names = rooms.iter().map(|room| room.lane.integration.clone());
        let by_integration = names.enumerate().map(|(index, name)| (name, index)).collect();
        let presence = Presence::new(&settings.worker, settings.claim_time);
        let deadlines = Deadlines::of_a_relay(settings.claim_time);
        let deadlines = Arc::new(DeadlineStore::new(store, deadlines));
        let shared = Shared {
            store: Arc::clone(&deadlines) as _,
            deadlines,
            jitter: Jitter::new(settings.seed),
            settings,
            lanes: rooms,
            by_integration,
            claims: Arc::default(),
            presence: Arc::new(presence),
            metrics: Arc::new(metrics),
            external: OnceLock::new(),
            board: Board::new(),
            room_freed: Notify::new(),
            more_waits: Notify::new(),
            rescued: Notify::new(),
            alone_waits: AtomicBool::new(true),
            due: DueTimes::default(),
            tally: Tally::default(),
            responses: Responses::default(),
            span,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Delivers until `stop` resolves; then takes no more, finishes what is in flight within
    /// `stop_limit`, and gives the rest back. A database that is away is waited for.
    ///
    /// When this future is dropped instead, what it holds is free once its claims have expired.
    ///
    /// # Errors
    /// When the schema does not fit this program, or a stage panics. A schema that is changed
    /// under it stops the relay in the same way: what is in flight is finished.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        self.shared.in_span(self.run_until(stop)).await
    }

    async fn run_until(&self, stop: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        let mut stop = std::pin::pin!(stop);
        let member = self.join();
        let ready = tokio::select! {
            biased;
            ready = self.wait_until_ready() => ready,
            () = &mut stop => return Ok(()),
        };
        ready?;
        let mut stages = Stages::start(&self.shared, Refusal::Held);
        let claimer = Claimer::new(Arc::clone(&self.shared), stages.doors.clone());
        let end_claiming = Arc::new(Stop::default());
        // In sets, which end what they hold when this future is dropped.
        let mut claiming = JoinSet::new();
        claiming.spawn(self.shared.in_span(claimer.run(Arc::clone(&end_claiming))));
        let assistant = Claimer::new(Arc::clone(&self.shared), stages.doors.clone());
        claiming.spawn(self.shared.in_span(assistant.assist(Arc::clone(&end_claiming))));
        let mut upkeep = JoinSet::new();
        upkeep.spawn(self.shared.in_span(beat(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(rescuer::run(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(recorder::run(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(pruner::run(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(reconciler::run(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(monitor::run(Arc::clone(&self.shared))));
        upkeep.spawn(self.shared.in_span(summary::run(Arc::clone(&self.shared))));
        let defect = |stage, error: Option<JoinError>| {
            let cause = error.map_or_else(|| "it returned".to_owned(), |error| error.to_string());
            Err(RelayError::Defect { stage, cause })
        };
        let outcome = tokio::select! {
            biased;
            () = stop => Ok(()),
            ended = claiming.join_next() => defect("claimer", ended.and_then(Result::err)),
            (stage, ended) = stages.ended() => defect(stage, ended),
            ended = upkeep.join_next() => defect("upkeep", ended.and_then(Result::err)),
            error = schema::changed(Arc::clone(&self.shared)) => {
                let text = with_causes(&error);
                tracing::error!(error = text, "the schema has changed: stopping");
                Err(RelayError::Store(error))
            }
        };
        // It ends between two takes: one that is cut off would leave its messages claimed until
        // the claim expires.
        let deadline = self.stop_deadline();
        end_claiming.begin(deadline);
        let both = async { while claiming.join_next().await.is_some() {} };
        let _ = tokio::time::timeout_at(deadline, both).await;
        claiming.shutdown().await;
        stages.stop(deadline).await?;
        upkeep.shutdown().await;
        member.leave(&*self.shared.store, deadline + RECORD_LIMIT).await;
        outcome
    }

    /// One pass: rescues expired claims, takes and settles up to `limit` due messages, records what is
    /// recorded in the background, and prunes.
    /// What [`run`](Self::run) says of being dropped holds here too.
    ///
    /// # Errors
    /// When the database cannot be used, or a stage panics.
    pub async fn tick(&self, limit: usize) -> Result<Pass, RelayError> {
        self.shared.in_span(self.pass(limit)).await
    }

    async fn pass(&self, limit: usize) -> Result<Pass, RelayError> {
        let before = self.shared.tally.read();
        let member = self.join();
        self.begin().await?;
        rescuer::rescue(&self.shared).await?;
        let stages = Stages::start(&self.shared, Refusal::GivenUp);
        let mut upkeep = JoinSet::new();
        upkeep.spawn(self.shared.in_span(beat(Arc::clone(&self.shared))));
        let claimer = Claimer::new(Arc::clone(&self.shared), stages.doors.clone());
        let outcome = claimer.once(limit).await;
        let deadline = self.stop_deadline();
        stages.stop(deadline).await?;
        upkeep.shutdown().await;
        member.leave(&*self.shared.store, deadline + RECORD_LIMIT).await;
        outcome?;
        recorder::record(&self.shared, Duration::ZERO).await?;
        pruner::prune(&self.shared).await?;
        let after = self.shared.tally.read();
        Ok(Pass {
            taken: after.taken - before.taken,
            sent: after.sent - before.sent,
            failed: after.failed - before.failed,
            dead: after.dead - before.dead,
            released: after.released - before.released,
        })
    }

    /// How the relay is.
    #[must_use]
    pub fn health(&self) -> Health {
        let own = self.shared.lanes.iter().map(|room| room.health());
        let external = self.shared.external.get().map(|external| external.health());
        let lanes = own.chain(external.into_iter().flatten()).collect();
        self.shared.board.health(lanes, self.shared.deadlines.silent_for())
    }

    /// Shows the lanes of another transport with its own. Only the first call counts.
    pub fn show_external_lanes(&self, external: Arc<dyn ExternalLanes>) {
        let _ = self.shared.external.set(external);
    }

    /// Where it counts, so that others can count there too.
    #[must_use]
    pub fn counters(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }

    /// What it has counted, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.age_metrics();
        self.shared.metrics.text()
    }

    /// Shows what nobody could count lately as it is at the least.
    pub(crate) fn age_metrics(&self) {
        let silent_for = self.shared.deadlines.silent_for();
        self.shared.metrics.age_lag(self.shared.board.lag_age(silent_for));
    }

    /// Notes why it has stopped by itself, until it runs again.
    pub(crate) fn is_refused(&self, error: &StoreError) {
        self.shared.span.in_scope(|| self.shared.board.database_fails(error));
    }

    /// What keeps its claims, so that those of another transport in the same process can be kept by
    /// the same heartbeat.
    #[must_use]
    pub fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.shared.presence)
    }

    fn join(&self) -> Member {
        let (claims, metrics) = (Arc::clone(&self.shared.claims), Arc::clone(&self.shared.metrics));
        let lanes = self.shared.lanes.len();
        self.shared.presence.join(Arc::new(OwnLanes { claims, metrics, lanes }))
    }

    fn stop_deadline(&self) -> Instant {
        Instant::now() + self.shared.settings.stop_limit
    }

    /// Checks the schema, mends what triggers may have missed, and sends the first heartbeat.
    async fn begin(&self) -> Result<(), StoreError> {
        self.shared.store.ready().await?;
        reconciler::reconcile(&self.shared, true).await?;
        // Only now: what keeps it from looking, as a lock on the table of messages, is told once it lasts.
        self.shared.board.database_answers();
        self.shared.presence.beat(&*self.shared.store, &[]).await?;
        Ok(())
    }

    async fn wait_until_ready(&self) -> Result<(), StoreError> {
        let mut backoff = Backoff::new();
        loop {
            match self.begin().await {
                Ok(()) => return Ok(()),
                Err(error) => match error.kind {
                    StoreErrorKind::Unavailable | StoreErrorKind::Conflict => {
                        self.shared.board.database_fails(&error);
                        tokio::time::sleep(backoff.pause(&self.shared.jitter)).await;
                    }
                    StoreErrorKind::Schema | StoreErrorKind::Refused => return Err(error),
                },
            }
        }
    }
}

impl Observed for Relay {
    fn health(&self) -> Health {
        Self::health(self)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }
}

async fn beat(shared: Arc<Shared>) {
    shared.presence.keep(&*shared.store, &shared.jitter).await;
}

/// Lanes and completer, from start to stop.
struct Stages {
    doors: Doors,
    lanes: JoinSet<()>,
    /// Keeps the completers of a relay without lanes.
    completions: mpsc::UnboundedSender<Vec<Completion>>,
    completers: JoinSet<()>,
    stop: Arc<Stop>,
}

impl Stages {
    fn start(shared: &Arc<Shared>, refusal: Refusal) -> Self {
        let stop = Arc::new(Stop::default());
        let (completions, inbox) = mpsc::unbounded_channel();
        let mut doors = Doors::new();
        let mut lanes = JoinSet::new();
        for room in &shared.lanes {
            // Unbounded by type, bounded by the room that the claimer asks for.
            let (door, works) = mpsc::unbounded_channel();
            doors.insert(room.lane.integration.clone(), door);
            lanes.spawn(shared.in_span(lane::run(
                Arc::clone(shared),
                Arc::clone(room),
                works,
                completions.clone(),
                Arc::clone(&stop),
            )));
        }
        let inbox = Arc::new(tokio::sync::Mutex::new(inbox));
        let (set_aside, arrivals) = set_aside::set_aside();
        let mut completers = JoinSet::new();
        let locked = set_aside::run(Arc::clone(shared), arrivals, refusal, Arc::clone(&stop));
        completers.spawn(shared.in_span(locked));
        for _ in 0..COMPLETERS {
            let (inbox, set_aside) = (Arc::clone(&inbox), set_aside.clone());
            completers.spawn(shared.in_span(completer::run(
                Arc::clone(shared),
                inbox,
                set_aside,
                Arc::clone(&stop),
            )));
        }
        Self { doors, lanes, completions, completers, stop }
    }

    /// Waits for a stage to end before its time, as none should.
    async fn ended(&mut self) -> (&'static str, Option<JoinError>) {
        tokio::select! {
            biased;
            Some(ended) = self.lanes.join_next() => ("lane", ended.err()),
            Some(ended) = self.completers.join_next() => ("completer", ended.err()),
        }
    }

    async fn stop(mut self, deadline: Instant) -> Result<(), RelayError> {
        self.stop.begin(deadline);
        self.doors.clear();
        let defect = |stage, error: tokio::task::JoinError| RelayError::Defect {
            stage,
            cause: error.to_string(),
        };
        while let Some(ended) = self.lanes.join_next().await {
            ended.map_err(|error| defect("lane", error))?;
        }
        drop(self.completions);
        // The lanes held the other ways to them: they end once everything is recorded.
        while let Some(ended) = self.completers.join_next().await {
            ended.map_err(|error| defect("completer", error))?;
        }
        Ok(())
    }
}
