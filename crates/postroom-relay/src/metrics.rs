//! Counters and gauges, in the text format of OpenMetrics.

use postroom_core::{Backlog, Fate};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct LaneLabel {
    integration: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    integration: String,
    outcome: Phase,
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

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct JobLabel {
    integration: String,
    outcome: JobOutcome,
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

/// Everything a relay counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    pending: PerLane<Gauge>,
    claimed: PerLane<Gauge>,
    failed: PerLane<Gauge>,
    dead: PerLane<Gauge>,
    lag: PerLane<Gauge<f64, AtomicU64>>,
    unrouted: PerLane<Gauge>,
    /// The lanes that had a backlog once, with their lag when it was counted last, in seconds.
    known: Mutex<HashMap<String, f64>>,
    sent: PerLane<Counter>,
    deliveries: Family<OutcomeLabel, Counter>,
    late: Counter,
    rescued: Counter,
    pruned: Counter,
    claims_lost: Counter,
    claim_duration: Histogram,
    delivery_duration: Family<LaneLabel, Histogram, fn() -> Histogram>,
    taken: PerLane<Counter>,
    jobs: Family<JobLabel, Counter>,
    jobs_outstanding: PerLane<Gauge>,
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

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            pending: Family::default(),
            claimed: Family::default(),
            failed: Family::default(),
            dead: Family::default(),
            lag: Family::default(),
            unrouted: Family::default(),
            known: Mutex::default(),
            sent: Family::default(),
            deliveries: Family::default(),
            late: Counter::default(),
            rescued: Counter::default(),
            pruned: Counter::default(),
            claims_lost: Counter::default(),
            claim_duration: duration_histogram(),
            delivery_duration: Family::new_with_constructor(duration_histogram),
            taken: Family::default(),
            jobs: Family::default(),
            jobs_outstanding: Family::default(),
            sums: Mutex::default(),
        };
        metrics.register();
        metrics
    }

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

    /// Counts messages that were taken for a queue.
    pub fn taken(&self, integration: &str, count: u64) {
        self.taken.get_or_create(&lane(integration)).inc_by(count);
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
        let label = JobLabel { integration: integration.to_owned(), outcome };
        self.jobs.get_or_create(&label).inc_by(count);
    }

    /// Shows how many jobs nobody has settled yet.
    pub fn jobs_outstanding(&self, integration: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.jobs_outstanding.get_or_create(&lane(integration)).set(count);
    }

    /// Counts outcomes that were recorded.
    pub fn settled(&self, integration: &str, phase: Phase, count: u64) {
        let label = OutcomeLabel { integration: integration.to_owned(), outcome: phase };
        self.deliveries.get_or_create(&label).inc_by(count);
        if phase == Phase::SENT {
            self.sent.get_or_create(&lane(integration)).inc_by(count);
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
        let histogram = self.delivery_duration.get_or_create(&lane(integration));
        histogram.observe(time.as_secs_f64() * 1_000.0);
    }

    /// Shows the backlog; lanes that have emptied since go to zero.
    pub(crate) fn backlog(&self, backlog: &Backlog, is_routed: impl Fn(&str) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let present: HashSet<&str> =
            backlog.lanes.iter().map(|lane| lane.integration.as_str()).collect();
        for (gone, last) in known.iter_mut().filter(|(name, _)| !present.contains(name.as_str())) {
            *last = 0.0;
            for gauge in [&self.pending, &self.claimed, &self.failed, &self.dead, &self.unrouted] {
                gauge.get_or_create(&lane(gone)).set(0);
            }
            self.lag.get_or_create(&lane(gone)).set(0.0);
        }
        for waiting in &backlog.lanes {
            let label = lane(&waiting.integration);
            let set = |family: &PerLane<Gauge>, count: u64| {
                family.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.pending, waiting.pending);
            set(&self.claimed, waiting.claimed);
            set(&self.failed, waiting.failed);
            set(&self.dead, waiting.dead);
            let unrouted =
                if is_routed(&waiting.integration) { 0 } else { waiting.pending + waiting.failed };
            set(&self.unrouted, unrouted);
            let lag = Duration::from_millis(waiting.lag_ms).as_secs_f64();
            self.lag.get_or_create(&label).set(lag);
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
            self.lag.get_or_create(&lane(integration)).set(lag + age.as_secs_f64());
        }
    }

    /// Everything, in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail; an empty page would be the sign if it did.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn lane(integration: &str) -> LaneLabel {
    LaneLabel { integration: integration.to_owned() }
}
