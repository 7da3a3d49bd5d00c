//! Counters and gauges, in the text format of OpenMetrics.
//!
//! The relays of several databases count in the same families, each under its database's name. Where
//! there is one database without a name, there is no such label.

mod per_database;

use per_database::PerDatabase;
use postroom_core::{Backlog, Fate};
use prometheus_client::encoding::{
    EncodeLabel, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, text,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The name of a database, where it has one.
type Name = Option<Arc<str>>;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct LaneLabel {
    database: Name,
    integration: String,
}

impl EncodeLabelSet for LaneLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        if let Some(name) = &self.database {
            ("database", &**name).encode(encoder.encode_label())?;
        }
        ("integration", self.integration.as_str()).encode(encoder.encode_label())
    }
}

/// A lane, and an outcome there.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct OutcomeLabel<O> {
    lane: LaneLabel,
    outcome: O,
}

impl<O: Copy + EncodeLabelValue> EncodeLabelSet for OutcomeLabel<O> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.lane.encode(encoder)?;
        ("outcome", self.outcome).encode(encoder.encode_label())
    }
}

/// What became of a delivery, by the words of the log.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::upper_case_acronyms, reason = "the label's value as it is read")]
pub enum Phase {
    /// Acknowledged.
    SENT,
    /// To be tried again.
    FAILED,
    /// Never to be tried again.
    DEAD,
    /// Given back untouched.
    RELEASED,
}

impl Phase {
    /// The phase that a fate leads to.
    #[must_use]
    pub fn of(fate: &Fate) -> Self {
        match fate {
            Fate::Sent => Self::SENT,
            Fate::Failed { .. } => Self::FAILED,
            Fate::Dead { .. } => Self::DEAD,
            Fate::Released | Fate::Postponed { .. } => Self::RELEASED,
        }
    }
}

/// What became of handing a message over to a queue.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
#[allow(clippy::upper_case_acronyms, reason = "the label's value as it is read")]
pub enum JobOutcome {
    /// A job was added.
    ADDED,
    /// Its job was there already, and goes on.
    FOUND,
    /// The queue will never take it.
    REFUSED,
    /// Its job went without a word, and another follows.
    GONE,
    /// Its queue has no room, and it is due again later.
    POSTPONED,
}

/// What was counted over all lanes since the beginning.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sums {
    /// Messages taken for a queue.
    pub(crate) queued: u64,
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
}

type PerLane<M> = Family<LaneLabel, M>;

/// What the relays of all databases count, side by side.
#[derive(Debug)]
pub(crate) struct Families {
    registry: Mutex<Registry>,
    pending: PerLane<Gauge>,
    claimed: PerLane<Gauge>,
    failed: PerLane<Gauge>,
    dead: PerLane<Gauge>,
    lag: PerLane<Gauge<f64, AtomicU64>>,
    unrouted: PerLane<Gauge>,
    sent: PerLane<Counter>,
    deliveries: Family<OutcomeLabel<Phase>, Counter>,
    late: PerDatabase<Counter>,
    rescued: PerDatabase<Counter>,
    vanished: PerLane<Counter>,
    unrecorded: PerLane<Gauge>,
    pruned: PerDatabase<Counter>,
    claims_lost: PerDatabase<Counter>,
    claim_duration: PerDatabase<Histogram>,
    delivery_duration: Family<LaneLabel, Histogram, fn() -> Histogram>,
    taken: PerLane<Counter>,
    jobs: Family<OutcomeLabel<JobOutcome>, Counter>,
    jobs_outstanding: PerLane<Gauge>,
}

/// Everything that is counted for one database.
#[derive(Debug)]
pub struct Metrics {
    families: Arc<Families>,
    database: Name,
    late: Counter,
    rescued: Counter,
    pruned: Counter,
    claims_lost: Counter,
    claim_duration: Histogram,
    /// The lanes that had a backlog once, with their lag when it was counted last, in seconds.
    known: Mutex<HashMap<String, f64>>,
    sums: Mutex<Sums>,
}

const BUCKETS_MS: [f64; 13] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0];

/// What the help of a gauge says whose name ends like a counter's.
const GIVEN_GAUGE: &str =
    "A gauge: its name is kept as it was given, though it ends in _total; do not apply rate()";

fn duration_histogram() -> Histogram {
    Histogram::new(BUCKETS_MS)
}

impl Default for Families {
    fn default() -> Self {
        let families = Self {
            registry: Mutex::default(),
            pending: Family::default(),
            claimed: Family::default(),
            failed: Family::default(),
            dead: Family::default(),
            lag: Family::default(),
            unrouted: Family::default(),
            sent: Family::default(),
            deliveries: Family::default(),
            late: PerDatabase::default(),
            rescued: PerDatabase::default(),
            vanished: Family::default(),
            unrecorded: Family::default(),
            pruned: PerDatabase::default(),
            claims_lost: PerDatabase::default(),
            claim_duration: PerDatabase::default(),
            delivery_duration: Family::new_with_constructor(duration_histogram),
            taken: Family::default(),
            jobs: Family::default(),
            jobs_outstanding: Family::default(),
        };
        families.register();
        families
    }
}

impl Families {
    fn register(&self) {
        let mut r = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // The outbox's own specification names these four, and the two histograms in milliseconds.
        let now = |what: &str| format!("Messages {what}. {GIVEN_GAUGE}");
        r.register("outbox_pending_total", now("PENDING now"), self.pending.clone());
        r.register("outbox_claimed_total", now("CLAIMED now"), self.claimed.clone());
        r.register("outbox_failed_total", now("FAILED now, to be retried"), self.failed.clone());
        r.register("outbox_dead_total", now("DEAD now"), self.dead.clone());
        r.register(
            "outbox_lag_seconds",
            "How long the oldest due message has been due",
            self.lag.clone(),
        );
        r.register(
            "outbox_unrouted",
            "Open messages that no lane here serves",
            self.unrouted.clone(),
        );
        r.register("outbox_sent", "Messages SENT by this relay", self.sent.clone());
        r.register("outbox_deliveries", "Attempts by outcome", self.deliveries.clone());
        r.register(
            "outbox_late_completions",
            "Outcomes that came after the claim was lost",
            self.late.clone(),
        );
        r.register("outbox_rescued", "Messages freed from expired claims", self.rescued.clone());
        r.register(
            "outbox_vanished",
            "Messages whose row was deleted before anybody delivered it",
            self.vanished.clone(),
        );
        r.register(
            "outbox_unrecorded",
            "Messages of this relay whose outcome the database refuses to record",
            self.unrecorded.clone(),
        );
        r.register(
            "outbox_pruned",
            "SENT messages deleted after their retention",
            self.pruned.clone(),
        );
        r.register(
            "outbox_claims_lost",
            "Claims that expired under this relay",
            self.claims_lost.clone(),
        );
        r.register(
            "outbox_claim_duration_ms",
            "Time to take a batch, in milliseconds",
            self.claim_duration.clone(),
        );
        r.register(
            "outbox_delivery_duration_ms",
            "Time of one sink call, in milliseconds",
            self.delivery_duration.clone(),
        );
        r.register("outbox_taken", "Messages taken for a queue", self.taken.clone());
        r.register("outbox_jobs", "Messages handed over to a queue by outcome", self.jobs.clone());
        r.register(
            "outbox_jobs_outstanding",
            "Jobs of this relay that nobody has settled yet",
            self.jobs_outstanding.clone(),
        );
    }

    /// Everything, in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail; an empty page would be the sign if it did.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

impl Metrics {
    /// Everything at zero, for a database without a name.
    #[must_use]
    pub fn new() -> Self {
        Self::of(None, Arc::default())
    }

    /// Everything at zero, for one database of those that count in `families`.
    pub(crate) fn of(database: Name, families: Arc<Families>) -> Self {
        Self {
            late: families.late.of(&database, Counter::default),
            rescued: families.rescued.of(&database, Counter::default),
            pruned: families.pruned.of(&database, Counter::default),
            claims_lost: families.claims_lost.of(&database, Counter::default),
            claim_duration: families.claim_duration.of(&database, duration_histogram),
            known: Mutex::default(),
            sums: Mutex::default(),
            families,
            database,
        }
    }

    /// Counts messages that were taken for a queue.
    pub fn taken(&self, integration: &str, count: u64) {
        self.families.taken.get_or_create(&self.lane(integration)).inc_by(count);
        self.sum(|sums| sums.queued += count);
    }

    /// What was counted over all lanes.
    pub(crate) fn sums(&self) -> Sums {
        *self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sum(&self, add: impl FnOnce(&mut Sums)) {
        add(&mut self.sums.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts hand-overs to a queue.
    pub fn jobs(&self, integration: &str, outcome: JobOutcome, count: u64) {
        let label = OutcomeLabel { lane: self.lane(integration), outcome };
        self.families.jobs.get_or_create(&label).inc_by(count);
    }

    /// Shows how many jobs nobody has settled yet.
    pub fn jobs_outstanding(&self, integration: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.families.jobs_outstanding.get_or_create(&self.lane(integration)).set(count);
    }

    /// Counts outcomes that were recorded.
    pub fn settled(&self, integration: &str, phase: Phase, count: u64) {
        let label = OutcomeLabel { lane: self.lane(integration), outcome: phase };
        self.families.deliveries.get_or_create(&label).inc_by(count);
        if phase == Phase::SENT {
            self.families.sent.get_or_create(&self.lane(integration)).inc_by(count);
        }
        self.sum(|sums| match phase {
            Phase::SENT => sums.sent += count,
            Phase::FAILED => sums.failed += count,
            Phase::DEAD => sums.dead += count,
            Phase::RELEASED => {}
        });
    }

    /// Counts outcomes that came too late.
    pub fn late(&self, count: u64) {
        self.late.inc_by(count);
    }

    /// Counts messages whose row was deleted before anybody delivered it.
    pub fn vanished(&self, integration: &str, count: u64) {
        self.families.vanished.get_or_create(&self.lane(integration)).inc_by(count);
    }

    /// Counts messages whose outcome the database refuses, and those of which that is over.
    pub(crate) fn unrecorded(&self, integration: &str, change: i64) {
        self.families.unrecorded.get_or_create(&self.lane(integration)).inc_by(change);
    }

    pub(crate) fn rescued(&self, count: u64) {
        self.rescued.inc_by(count);
    }

    pub(crate) fn pruned(&self, count: u64) {
        self.pruned.inc_by(count);
    }

    pub(crate) fn claims_lost(&self, count: u64) {
        self.claims_lost.inc_by(count);
    }

    /// Notes how long taking a batch took.
    pub fn claim_took(&self, time: Duration) {
        self.claim_duration.observe(time.as_secs_f64() * 1_000.0);
    }

    /// Notes how long a sink call took.
    pub fn delivery_took(&self, integration: &str, time: Duration) {
        let histogram = self.families.delivery_duration.get_or_create(&self.lane(integration));
        histogram.observe(time.as_secs_f64() * 1_000.0);
    }

    /// Shows the backlog; lanes that have emptied since go to zero.
    pub(crate) fn backlog(&self, backlog: &Backlog, is_routed: impl Fn(&str) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let present: HashSet<&str> =
            backlog.lanes.iter().map(|lane| lane.integration.as_str()).collect();
        for (gone, last) in known.iter_mut().filter(|(name, _)| !present.contains(name.as_str())) {
            *last = 0.0;
            let Families { pending, claimed, failed, dead, unrouted, .. } = &*self.families;
            for gauge in [pending, claimed, failed, dead, unrouted] {
                gauge.get_or_create(&self.lane(gone)).set(0);
            }
            self.families.lag.get_or_create(&self.lane(gone)).set(0.0);
        }
        for waiting in &backlog.lanes {
            let label = self.lane(&waiting.integration);
            let set = |family: &PerLane<Gauge>, count: u64| {
                family.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.families.pending, waiting.pending);
            set(&self.families.claimed, waiting.claimed);
            set(&self.families.failed, waiting.failed);
            set(&self.families.dead, waiting.dead);
            let unrouted =
                if is_routed(&waiting.integration) { 0 } else { waiting.pending + waiting.failed };
            set(&self.families.unrouted, unrouted);
            let lag = Duration::from_millis(waiting.lag_ms).as_secs_f64();
            self.families.lag.get_or_create(&label).set(lag);
            known.insert(waiting.integration.clone(), lag);
        }
    }

    /// Shows the lag as it is at the least when the backlog was counted so long ago; nothing for a
    /// count that is fresh.
    pub(crate) fn age_lag(&self, age: Duration) {
        if age.is_zero() {
            return;
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (integration, lag) in known.iter() {
            self.families.lag.get_or_create(&self.lane(integration)).set(lag + age.as_secs_f64());
        }
    }

    /// Everything, in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        self.families.text()
    }

    fn lane(&self, integration: &str) -> LaneLabel {
        LaneLabel { database: self.database.clone(), integration: integration.to_owned() }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
