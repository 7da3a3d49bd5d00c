//! Lanes of an outbox that run through BullMQ queues.
//!
//! ```text
//! store → dispatcher → queue → worker (ours: deliverer → sink → settler → store)
//!             keeper · watcher       (external: watcher → settler → store)
//! ```
//!
//! The outbox stays the truth. A job is one numbered dispatch of a message; its id follows from
//! both, so that a crash anywhere leads to the same job again, and every report on it is fenced by
//! its number. Redis may lose everything: what is outstanding is looked at, and dispatched again
//! when it is gone.

mod adding;
mod batcher;
mod data;
mod deliverer;
mod dispatcher;
mod faults;
mod finished_jobs;
mod heartbeat;
mod keeper;
mod lanes;
mod marked;
mod names;
mod outage;
mod outstanding;
mod postponing;
mod queues;
mod reader;
mod reopening;
mod rota;
mod settler;
mod shared;
mod tenants;
mod unqueued;
mod watcher;

pub use data::JobData;
pub use lanes::{Delivery, QueueLane, Workers};
pub use names::{JobName, QueuePattern};
pub use tenants::{TenantRate, TenantRates};

use crate::server::Redis;
use crate::worker::{Health as WorkerHealth, Worker, WorkerOptions};
use deliverer::Deliverer;
use dispatcher::Dispatcher;
use faults::Faults;
use finished_jobs::ReadSize;
use keeper::InQueues;
use outage::Outage;
use postroom_core::Store;
use postroom_relay::{
    DeadlineStore, Deadlines, ExternalLanes, Health, Jitter, LaneHealth, LaneState as Running,
    Member, Metrics, Observed, Pauses, Presence, Settings, problem,
};
use queues::{Queues, Told};
use reader::Reader;
use rota::{Place, Rota, Turn};
use settler::Settler;
use shared::{LaneState, Shared};
use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenants::Turns;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use watcher::Watcher;

/// How often the queues of tenants are looked for.
const DISCOVER_EVERY: Duration = Duration::from_secs(1);
/// How long a worker may take to stop beyond its jobs' grace time.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// What a process does for its lanes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Everything: dispatch, watch, and run the jobs of lanes with workers of ours.
    Relay,
    /// Only run jobs.
    Worker,
}

/// A task of the transport panicked: a defect in Postroom. Nothing is lost; claims and locks expire.
#[derive(Debug, thiserror::Error)]
#[error("the BullMQ transport's {task} ended unexpectedly: {cause}")]
pub struct Defect {
    task: &'static str,
    cause: String,
}

impl Defect {
    fn of(task: &'static str, ended: Result<(), JoinError>) -> Self {
        let cause = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
        Self { task, cause }
    }
}

/// The lanes of one outbox that run through BullMQ.
pub struct Transport {
    shared: Arc<Shared>,
    workers: Mutex<Vec<AtWork>>,
}

/// A worker that runs.
struct AtWork {
    lane: usize,
    queue: String,
    turn: u64,
    health: watch::Receiver<WorkerHealth>,
}

impl Transport {
    /// A transport for `lanes` from `store`. Nothing is connected to yet.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        redis: Redis,
        settings: Settings,
        lanes: Vec<QueueLane>,
        tenants: TenantRates,
        metrics: Arc<Metrics>,
    ) -> Self {
        let lanes = lanes
            .into_iter()
            .map(|lane| LaneState { pauses: Pauses::new(&lane.integration), lane });
        let presence = Presence::new(&settings.worker, settings.claim_time);
        let deadlines = Deadlines::of_a_relay(settings.claim_time);
        let deadlines = Arc::new(DeadlineStore::new(store, deadlines));
        let shared = Shared {
            store: Arc::clone(&deadlines) as _,
            deadlines,
            redis,
            jitter: Jitter::new(settings.seed),
            settings,
            lanes: lanes.collect(),
            metrics,
            outstanding: Arc::default(),
            presence: Arc::new(presence),
            turns: Turns::new(tenants),
            read_size: ReadSize::default(),
            faults: Faults::default(),
            redis_outage: Outage::new("Redis"),
            database_outage: Outage::new("the database"),
        };
        Self { shared: Arc::new(shared), workers: Mutex::default() }
    }

    /// The same transport, whose claims are kept by the heartbeat of the relay in the same process. To
    /// be called before it runs; without this it has a heartbeat of its own.
    #[must_use]
    pub fn sharing(mut self, presence: Arc<Presence>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.presence = presence;
        }
        self
    }

    /// Does its part until `stop` resolves; then takes no more, and waits for jobs that run within
    /// the stop's limit. Redis and the database are waited for while they are away.
    ///
    /// When this future is dropped instead, what it holds is free once its claims have expired, and
    /// its jobs are run by others once their locks have.
    ///
    /// # Errors
    /// When one of its tasks panics.
    pub async fn run(
        &self,
        part: Part,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), Defect> {
        let (settler, reports) = settler::settler();
        let (reader, questions) = reader::reader();
        let (queues, mut told) = Queues::new(Arc::clone(&self.shared));
        let queues = Arc::new(queues);
        let stopping = watch::Sender::new(false);
        // In sets, which end what they hold when this future is dropped. Those of queues say whether
        // their end was due.
        let (mut services, mut dispatching) = (JoinSet::new(), JoinSet::new());
        let (mut watching, mut working) = (JoinSet::new(), JoinSet::new());
        let mut member = None;
        services.spawn(settler::run(Arc::clone(&self.shared), reports));
        services.spawn(reader::run(Arc::clone(&self.shared), questions));
        if part == Part::Relay {
            let shared = || Arc::clone(&self.shared);
            member = Some(self.join());
            services.spawn(keeper::keep(shared()));
            services.spawn(keeper::end(shared()));
            services.spawn(keeper::sweep(shared(), settler.clone(), Arc::clone(&queues)));
            let queues = Arc::clone(&queues);
            let dispatcher = Dispatcher::new(shared(), settler.clone(), queues);
            dispatching.spawn(dispatcher.run(stopping.subscribe()));
        } else {
            services.spawn(heartbeat::run(Arc::clone(&self.shared)));
        }
        let mut stop = std::pin::pin!(stop);
        let mut discover = interval(DISCOVER_EVERY);
        let mut look = interval(rota::SEE_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut watched, mut worked) = (HashSet::new(), HashSet::new());
        let mut rota = Rota::new();
        let begin = |working: &mut JoinSet<_>, turn: Turn| {
            if let Some(worker) = self.worker(&turn, &settler, &reader) {
                working.spawn(work_until(worker, turn, stopping.subscribe()));
            }
        };
        let outcome = loop {
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                // None of them should end before its time.
                Some(ended) = services.join_next() => break Err(Defect::of("upkeep", ended)),
                Some(ended) = dispatching.join_next() => {
                    break Err(Defect::of("dispatcher", ended));
                }
                Some(ended) = watching.join_next() => if !matches!(ended, Ok(true)) {
                    break Err(Defect::of("watcher", ended.map(|_| ())));
                },
                Some(ended) = working.join_next() => match ended {
                    Ok(Ended { queue, turn, is_due: true }) => {
                        self.workers().retain(|worker| worker.turn != turn);
                        rota.ended(&queue, turn);
                    }
                    ended => break Err(Defect::of("worker", ended.map(|_| ()))),
                },
                Some(told) = told.recv() => match told {
                    Told::Opened { lane, queue, closed } => {
                        if part == Part::Relay && watched.insert(queue.name().to_owned()) {
                            let (shared, settler) = (Arc::clone(&self.shared), settler.clone());
                            let watcher = Watcher { shared, settler, queue: queue.clone() };
                            watching.spawn(watch_until(watcher, closed.clone()));
                        }
                        let settings = &self.shared.lanes[lane].lane;
                        if matches!(settings.workers, Workers::Own(_))
                            && worked.insert(queue.name().to_owned())
                        {
                            let place = Place { lane, queue, closed };
                            let turn = if settings.queue.is_by_tenant() {
                                rota.join(place)
                            } else {
                                Some(rota.always(place))
                            };
                            if let Some(turn) = turn {
                                begin(&mut working, turn);
                            }
                        }
                    }
                    Told::Given(queue) => {
                        if let Some(turn) = rota.given(&queue) {
                            begin(&mut working, turn);
                        }
                    }
                    Told::Closed(queue) => {
                        watched.remove(&queue);
                        worked.remove(&queue);
                        rota.leave(&queue);
                        self.workers().retain(|worker| worker.queue != queue);
                    }
                },
                _ = look.tick(), if rota.is_due() => {
                    let next = tokio::select! {
                        biased;
                        () = &mut stop => break Ok(()),
                        next = rota.next(&self.shared.redis) => next,
                    };
                    match next {
                        Ok(turns) => turns.into_iter().for_each(|turn| begin(&mut working, turn)),
                        Err(error) => self.shared.redis_away(&error),
                    }
                }
                _ = discover.tick() => {
                    let found = tokio::select! {
                        biased;
                        () = &mut stop => break Ok(()),
                        found = queues.discover() => found,
                    };
                    match found {
                        Err(error) => self.shared.redis_away(&error),
                        Ok(()) if part == Part::Worker => self.shared.redis_outage.end(),
                        Ok(()) => {}
                    }
                }
            }
        };
        stopping.send_replace(true);
        let limit = self.shared.settings.stop_limit;
        let _ =
            tokio::time::timeout(limit, async { while dispatching.join_next().await.is_some() {} })
                .await;
        let _ = tokio::time::timeout(limit + STOP_GRACE, async {
            while working.join_next().await.is_some() {}
        })
        .await;
        services.shutdown().await;
        if let Some(member) = member {
            // Another relay need not wait before it looks after the jobs that are left.
            member.leave(&*self.shared.store, Instant::now() + STOP_GRACE).await;
        }
        outcome
    }

    fn join(&self) -> Member {
        let (outstanding, lanes) = (Arc::clone(&self.shared.outstanding), self.shared.lanes.len());
        self.shared.presence.join(Arc::new(InQueues { outstanding, lanes }))
    }

    /// A worker for a lane's queue; `None` where the lane has none of ours.
    fn worker(&self, turn: &Turn, settler: &Settler, reader: &Reader) -> Option<Worker> {
        let (lane, queue) = (turn.place.lane, &turn.place.queue);
        let settings = &self.shared.settings;
        let delivery = match &self.shared.lanes[lane].lane.workers {
            Workers::Own(delivery) => delivery.clone(),
            Workers::External => return None,
        };
        let options = WorkerOptions {
            concurrency: delivery.concurrency,
            rate: delivery.rate,
            lock_time: settings.claim_time,
            stalled_interval: settings.claim_time,
            grace: settings.stop_limit,
            ..WorkerOptions::new(settings.worker.clone())
        };
        let deliverer = Deliverer {
            shared: Arc::clone(&self.shared),
            settler: settler.clone(),
            reader: reader.clone(),
            queue: queue.name().to_owned(),
            lane,
            delivery,
        };
        let worker = Worker::new(queue, options, Arc::new(deliverer));
        let (queue, health) = (queue.name().to_owned(), worker.health());
        self.workers().push(AtWork { lane, queue, turn: turn.number, health });
        Some(worker)
    }

    fn lane_health(&self, lane: usize) -> LaneHealth {
        let state = &self.shared.lanes[lane];
        let mut health = state.pauses.health(self.shared.outstanding.of_lane(lane));
        if let Some(error) = self.redis_error(lane) {
            health.state = Running::Paused;
            health.error = Some(error);
        }
        health
    }

    /// Why a lane's queues cannot be used.
    fn redis_error(&self, lane: usize) -> Option<String> {
        let workers = self.workers();
        let mut of_lane = workers.iter().filter(|worker| worker.lane == lane);
        let away = of_lane.find_map(|worker| match &*worker.health.borrow() {
            WorkerHealth::Away(problem) => Some(self.with_place(problem)),
            WorkerHealth::Starting | WorkerHealth::Up => None,
        });
        self.shared.redis_outage.error().or_else(|| self.shared.faults.error(lane)).or(away)
    }

    /// A problem that names the server it is with.
    fn with_place(&self, problem: &str) -> String {
        let place = self.shared.redis.place();
        if problem.contains(place) {
            problem.to_owned()
        } else {
            format!("Redis at {place} cannot be used now: {problem}")
        }
    }

    fn workers(&self) -> MutexGuard<'_, Vec<AtWork>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches a queue until it is closed; whether it was.
async fn watch_until(watcher: Watcher, mut closed: queues::Closed) -> bool {
    tokio::select! {
        biased;
        () = closed.wait() => true,
        () = watcher.run() => false,
    }
}

/// A worker that has ended.
struct Ended {
    queue: String,
    turn: u64,
    /// Whether that was due.
    is_due: bool,
}

/// Runs a queue's jobs until its turn is over, it is closed or everything stops.
async fn work_until(worker: Worker, turn: Turn, mut stopping: watch::Receiver<bool>) -> Ended {
    let Turn { place: Place { queue, mut closed, .. }, number, mut recalled, slot } = turn;
    let (is_stopping, is_closed, is_recalled) =
        (stopping.clone(), closed.clone(), recalled.clone());
    let stop = async move {
        // The sender outlives every worker.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    };
    let leave = async move {
        tokio::select! {
            () = closed.wait() => {}
            Ok(_) = recalled.wait_for(|recalled| *recalled) => {}
        }
    };
    worker.run_in_turn(stop, leave, slot).await;
    let is_due = *is_stopping.borrow() || is_closed.is_closed() || *is_recalled.borrow();
    Ended { queue: queue.name().to_owned(), turn: number, is_due }
}

impl ExternalLanes for Transport {
    fn serves(&self, integration: &str) -> bool {
        self.shared.lanes.iter().any(|state| state.lane.integration == integration)
    }

    fn health(&self) -> Vec<LaneHealth> {
        (0..self.shared.lanes.len()).map(|lane| self.lane_health(lane)).collect()
    }
}

/// A process that only runs jobs shows itself. It is ready once the database and Redis can be used.
impl Observed for Transport {
    fn health(&self) -> Health {
        let fault = self.shared.database_outage.error();
        let database = problem(fault.as_deref(), self.shared.deadlines.silent_for());
        let has_queues = (0..self.shared.lanes.len()).all(|lane| self.redis_error(lane).is_none());
        let is_ready = database.is_none() && has_queues;
        Health {
            ready: is_ready,
            database: database.unwrap_or_else(|| "ok".to_owned()),
            lanes: ExternalLanes::health(self),
            databases: Vec::new(),
            unrouted: Vec::new(),
            lag_ms: 0,
        }
    }

    fn metrics(&self) -> String {
        self.shared.metrics.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told() {
        let ended = tokio::spawn(async { panic!("no more") }).await;
        let told = Defect::of("worker", ended).to_string();
        assert!(told.contains("worker") && told.contains("no more"), "{told}");
    }
}
