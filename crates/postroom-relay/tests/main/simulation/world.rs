//! Runs a plan: producers, relays as processes that come and go, and faults.

use super::books::Books;
use super::destination::Destination;
use super::ledger;
use super::link::Link;
use super::plan::{Act, Fault, Plan};
use super::weather::Weather;
use super::{Outcome, ms};
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{Admin as _, Batch, Clock, Filter, NewMessage, Take, Upkeep as _};
use postroom_relay::{Lane, Relay, RelayError, Settings};
use postroom_store::memory::{Flaw, Ledger, MemoryStore, Uncommitted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// How long everything may take to drain: many times what the slowest plan needs.
const DRAIN_LIMIT: Duration = Duration::from_secs(30 * 60);
const DEAD_LETTER: &str = "sim:dead";
/// What a violation says that the laws of the ledger found.
pub(super) const BROKEN_LAW: &str = "the ledger";

/// What producers, relays and destinations share.
pub(super) struct World {
    pub(super) store: MemoryStore,
    pub(super) books: Books,
    pub(super) weather: Weather,
    clock: VirtualClock,
    /// By event id.
    acts: BTreeMap<String, Vec<Act>>,
    /// How to end the processes that run.
    processes: Mutex<BTreeMap<usize, AbortHandle>>,
    /// Those that a message has killed.
    killed: Mutex<BTreeSet<usize>>,
    /// The ledger after the last step.
    last_look: Mutex<Ledger>,
    /// Some law of the ledger is broken: what follows from that is not looked at.
    is_ledger_broken: AtomicBool,
}

impl World {
    fn new(seed: u64, plan: &Plan, flaw: Option<Flaw>) -> Self {
        let clock = VirtualClock { began: Instant::now() };
        let acts = plan.messages.iter().enumerate();
        let store = MemoryStore::new(Arc::new(clock)).seeded(seed);
        Self {
            store: flaw.into_iter().fold(store, MemoryStore::with_flaw),
            books: Books::new(plan.relays.iter().map(|relay| relay.batch_size).max().unwrap_or(1)),
            weather: Weather::new(seed, plan),
            clock,
            acts: acts.map(|(n, message)| (event_id(n), message.acts.clone())).collect(),
            processes: Mutex::default(),
            killed: Mutex::default(),
            last_look: Mutex::default(),
            is_ledger_broken: AtomicBool::new(false),
        }
    }

    /// The laws of the ledger, at any step.
    pub(super) fn check_ledger(&self) {
        self.look();
    }

    /// The same after a take, and what it gave out.
    pub(super) fn check_take(&self, batches: &[Batch], take: &Take<'_>) {
        if let Some((before, after)) = self.look() {
            for kind in ledger::kinds(batches, &before, &after) {
                self.books.note(kind, None);
            }
            self.report(ledger::wrong_with(batches, take, &after));
        } else if !batches.is_empty() {
            self.report(vec!["a take gave out messages and left everything as it was".to_owned()]);
        }
    }

    /// Checks the laws where something has changed since the last step; the ledger then and now.
    fn look(&self) -> Option<(Ledger, Ledger)> {
        let after = self.store.ledger();
        let mut last = self.last_look.lock().unwrap();
        if *last == after {
            return None;
        }
        let before = std::mem::replace(&mut *last, after.clone());
        self.report(ledger::broken_laws(&after));
        Some((before, after))
    }

    fn report(&self, broken: Vec<String>) {
        if broken.is_empty() || self.is_ledger_broken.swap(true, Ordering::Relaxed) {
            return;
        }
        for law in broken {
            self.books.violation(format!("{BROKEN_LAW}: {law}"));
        }
    }

    /// Ends a process from one moment to the next.
    pub(super) fn kill(&self, process: usize) {
        self.killed.lock().unwrap().insert(process);
        if let Some(process) = self.processes.lock().unwrap().remove(&process) {
            process.abort();
        }
    }

    fn is_killed(&self, process: usize) -> bool {
        self.killed.lock().unwrap().contains(&process)
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// What a destination does with the attempt of this ordinal.
    pub(super) fn act(&self, event_id: &str, ordinal: usize) -> Act {
        let acts = self.acts.get(event_id).map_or(&[][..], Vec::as_slice);
        acts.get(ordinal).copied().unwrap_or(Act::Accept(ms(5)))
    }
}

/// The store's clock, driven by the runtime's.
#[derive(Clone, Copy)]
struct VirtualClock {
    began: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::from_std(self.began.elapsed()).unwrap()
    }
}

fn event_id(n: usize) -> String {
    format!("event-{n}")
}

/// Something the world does at its time.
enum Event {
    Insert(usize),
    /// The end of a transaction that was left open.
    End(usize),
    Break(Fault),
    Start(usize),
}

/// A relay that runs, as a process of its own.
struct Process {
    number: usize,
    /// Which relay of the plan.
    slot: usize,
    relay: Arc<Relay>,
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<(), RelayError>>,
}

struct Simulation {
    plan: Plan,
    seed: u64,
    world: Arc<World>,
    /// By relay of the plan; `None` while it is down.
    running: Vec<Option<Process>>,
    started: usize,
    /// Every relay that ever ran, to see what it still counts.
    relays: Vec<Arc<Relay>>,
    /// Producers' transactions that are open, by insert of the plan.
    open: BTreeMap<usize, Uncommitted>,
}

pub(super) async fn run(seed: u64, flaw: Option<Flaw>) -> Outcome {
    let plan = Plan::of(seed);
    let world = Arc::new(World::new(seed, &plan, flaw));
    let running = plan.relays.iter().map(|_| None).collect();
    let (relays, open) = (Vec::new(), BTreeMap::new());
    let mut simulation = Simulation { plan, seed, world, running, started: 0, relays, open };
    simulation.play().await;
    let (violations, journal) = simulation.world.books.take();
    Outcome { violations, journal }
}

impl Simulation {
    async fn play(&mut self) {
        let began = Instant::now();
        for (at, event) in self.events() {
            tokio::time::sleep_until(began + at).await;
            self.revive();
            self.happen(event).await;
            self.world.check_ledger();
            self.check_bounds();
        }
        tokio::time::sleep_until(began + self.plan.healed_at).await;
        self.world.weather.clear_up();
        self.world.books.note("healed", None);
        self.revive();
        for relay in 0..self.running.len() {
            if self.running[relay].is_none() {
                self.start(relay);
            }
        }
        self.drain().await;
        for relay in 0..self.running.len() {
            self.stop(relay).await;
        }
        self.close().await;
    }

    fn events(&self) -> Vec<(Duration, Event)> {
        let mut events = Vec::new();
        for (n, insert) in self.plan.inserts.iter().enumerate() {
            events.push((insert.at, Event::Insert(n)));
            events.push((insert.at + insert.open_for, Event::End(n)));
        }
        events.extend((0..self.running.len()).map(|relay| (ms(0), Event::Start(relay))));
        for (at, fault) in &self.plan.faults {
            events.push((*at, Event::Break(*fault)));
            if let Fault::Crash { relay, back_after } | Fault::Stop { relay, back_after } = *fault {
                events.push((*at + back_after, Event::Start(relay)));
            }
        }
        events.sort_by_key(|(at, _)| *at);
        events
    }

    async fn happen(&mut self, event: Event) {
        match event {
            Event::Insert(n) => self.insert(n),
            Event::End(n) => self.end(n).await,
            Event::Start(relay) if self.running[relay].is_none() => self.start(relay),
            Event::Start(_) => {}
            Event::Break(Fault::Crash { relay, .. }) => self.crash(relay).await,
            Event::Break(Fault::Stop { relay, .. }) => self.stop(relay).await,
            Event::Break(fault) => {
                let (what, relay) = match fault {
                    Fault::Pause { relay, .. } => ("pause", Some(relay)),
                    Fault::NoHeartbeat { relay, .. } => ("no heartbeat", Some(relay)),
                    Fault::Outage { .. } => ("outage", None),
                    _ => ("slow", None),
                };
                self.world.books.note(what, relay);
                self.world.weather.begin(fault);
            }
        }
    }

    /// A producer inserts messages, and draws their numbers.
    fn insert(&mut self, n: usize) {
        let insert = &self.plan.inserts[n];
        let batch: Vec<NewMessage> = insert.messages.clone().map(|n| self.message(n)).collect();
        self.open.insert(n, self.world.store.insert_uncommitted(&batch).unwrap());
    }

    fn message(&self, n: usize) -> NewMessage {
        let plan = &self.plan.messages[n];
        let mut message = NewMessage::new(lane_name(plan.lane), "order.created.v1").json(&n);
        message.event_id = event_id(n);
        message.max_attempts = i32::try_from(plan.max_attempts).unwrap();
        if plan.delay > ms(0) {
            message = message.due_at(self.world.now() + plan.delay);
        }
        message
    }

    /// Its transaction ends: others may have inserted, and relays taken, in between.
    async fn end(&mut self, n: usize) {
        let Some(open) = self.open.remove(&n) else { return };
        if !self.plan.inserts[n].commits {
            drop(open);
            return self.world.books.note("rolled back", None);
        }
        for inserted in open.commit() {
            let record = self.world.store.find(inserted.id()).await.unwrap().unwrap();
            self.world.books.committed(&record);
        }
    }

    fn start(&mut self, relay: usize) {
        let number = self.started;
        self.started += 1;
        let plan = &self.plan.relays[relay];
        let settings = Settings {
            worker: format!("relay-{number}"),
            poll_interval: plan.poll_interval,
            batch_size: plan.batch_size,
            claim_time: plan.claim_time,
            stop_limit: plan.stop_limit,
            dead_letter: self.plan.dead_letter.then(|| DEAD_LETTER.to_owned()),
            seed: Some(self.seed.wrapping_mul(1_000).wrapping_add(number as u64)),
            ..Settings::default()
        };
        let link = Link { world: Arc::clone(&self.world), process: number, relay };
        let relay_of = Arc::new(Relay::new(Arc::new(link), settings, self.lanes(number, relay)));
        self.relays.push(Arc::clone(&relay_of));
        self.world.books.note("start", Some(number));
        let (stop, stopped) = oneshot::channel();
        let runs = Arc::clone(&relay_of);
        let run = tokio::spawn(async move {
            runs.run(async {
                let _ = stopped.await;
            })
            .await
        });
        self.world.processes.lock().unwrap().insert(number, run.abort_handle());
        self.running[relay] = Some(Process { number, slot: relay, relay: relay_of, stop, run });
    }

    fn lanes(&self, process: usize, relay: usize) -> Vec<Lane> {
        let sink = Arc::new(Destination { world: Arc::clone(&self.world), process, relay });
        let lane = |(n, plan): (usize, &super::plan::LanePlan)| Lane {
            concurrency: plan.concurrency,
            batch_size: plan.batch_size,
            timeout: plan.timeout,
            retry: plan.retry,
            ..Lane::new(lane_name(n), sink.clone())
        };
        let mut lanes: Vec<Lane> = self.plan.lanes.iter().enumerate().map(lane).collect();
        lanes.push(Lane { retry: lanes[0].retry, ..Lane::new(DEAD_LETTER, sink.clone()) });
        lanes
    }

    /// Starts those again that a message has killed.
    fn revive(&mut self) {
        for relay in 0..self.running.len() {
            let number = self.running[relay].as_ref().map(|process| process.number);
            if number.is_some_and(|number| self.world.is_killed(number)) {
                self.running[relay] = None;
                self.start(relay);
            }
        }
    }

    /// The process is gone from one moment to the next.
    async fn crash(&mut self, relay: usize) {
        let Some(process) = self.running[relay].take() else { return };
        self.world.books.note("crash", Some(process.number));
        process.run.abort();
        let _ = process.run.await;
    }

    async fn stop(&mut self, relay: usize) {
        let Some(process) = self.running[relay].take() else { return };
        self.world.books.note("stop", Some(process.number));
        let asked = Instant::now();
        let _ = process.stop.send(());
        let ended = process.run.await;
        if !matches!(ended, Ok(Ok(()))) && !self.world.is_killed(process.number) {
            self.world.books.violation(format!("relay {} ended with {ended:?}", process.number));
        }
        let limit = self.plan.relays[relay].stop_limit + ms(1_100);
        if asked.elapsed() > limit {
            self.world.books.violation(format!("a stop took {:?} of {limit:?}", asked.elapsed()));
        }
    }

    /// Liveness: nothing breaks any more, so everything must come to its end.
    async fn drain(&mut self) {
        let end = Instant::now() + DRAIN_LIMIT;
        while !self.world.books.are_closed() || self.is_any_open().await {
            if Instant::now() > end {
                return self.world.books.violation("it does not drain".to_owned());
            }
            tokio::time::sleep(ms(500)).await;
            self.revive();
            self.check_bounds();
        }
        self.world.books.note("drained", None);
    }

    /// Whether the store has open messages. The books do not know of an announcement before some relay
    /// takes it.
    async fn is_any_open(&self) -> bool {
        let backlog = self.world.store.backlog().await.unwrap();
        backlog.total(|lane| lane.pending + lane.claimed + lane.failed) > 0
    }

    /// What a relay holds is bounded at any time, and it never ends by itself.
    fn check_bounds(&self) {
        for process in self.running.iter().flatten() {
            if process.run.is_finished() && !self.world.is_killed(process.number) {
                self.world.books.violation(format!("relay {} ended by itself", process.number));
            }
            for lane in process.relay.health().lanes {
                if lane.in_flight > self.in_hand_max(process, &lane.integration) {
                    self.world.books.violation(format!("{lane:?} holds too much"));
                }
            }
        }
    }

    /// Four times what a lane delivers at once, or twice what is taken at once.
    fn in_hand_max(&self, process: &Process, integration: &str) -> usize {
        let lanes = self.plan.lanes.iter().enumerate();
        let lane = lanes.into_iter().find(|(n, _)| lane_name(*n) == integration);
        let at_once = lane.map_or(16 * 100, |(_, lane)| lane.concurrency * lane.batch_size);
        (4 * at_once).max(2 * self.plan.relays[process.slot].batch_size)
    }

    async fn close(&self) {
        // What was aborted is dropped when the runtime has its next turn.
        tokio::time::sleep(ms(1)).await;
        for relay in &self.relays {
            for lane in relay.health().lanes {
                if lane.in_flight > 0 {
                    self.world.books.violation(format!("in the end a relay still counts {lane:?}"));
                }
            }
        }
        let all = Filter { limit: usize::MAX, ..Filter::default() };
        let records = self.world.store.list(&all).await.unwrap();
        self.world.books.close(&records, self.plan.dead_letter);
        let dead = records.iter().filter(|record| record.status == "DEAD").count();
        let counts = self.world.store.by_hand().counts();
        if (counts.deliveries, counts.parcels, counts.claims) != (dead, 0, 0) {
            self.world.books.violation(format!("{counts:?} are left"));
        }
    }
}

fn lane_name(n: usize) -> String {
    format!("sim:{n}")
}
