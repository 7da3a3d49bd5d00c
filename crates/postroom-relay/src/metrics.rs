//! Counters and gauges, in Prometheus' text format.

use postroom_core::Backlog;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct LaneLabel {
    integration: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct OutcomeLabel {
    integration: String,
    outcome: Phase,
}

/// What became of a delivery, by the words of the log.
#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
#[allow(clippy::upper_case_acronyms, reason = "the label's value as it is read")]
pub(crate) enum Phase {
    SENT,
    FAILED,
    DEAD,
    RELEASED,
}

type PerLane<M> = Family<LaneLabel, M>;

/// Everything a relay counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    pending: PerLane<Gauge>,
    claimed: PerLane<Gauge>,
    failed: PerLane<Gauge>,
    dead: PerLane<Gauge>,
    lag: PerLane<Gauge<f64, AtomicU64>>,
    unrouted: PerLane<Gauge>,
    known: Mutex<HashSet<String>>,
    sent: PerLane<Counter>,
    deliveries: Family<OutcomeLabel, Counter>,
    late: Counter,
    rescued: Counter,
    pruned: Counter,
    claims_lost: Counter,
    claim_duration: Histogram,
    delivery_duration: Family<LaneLabel, Histogram, fn() -> Histogram>,
}

const BUCKETS_MS: [f64; 13] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0];

fn duration_histogram() -> Histogram {
    Histogram::new(BUCKETS_MS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
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
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut r = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        r.register("outbox_pending_total", "Messages PENDING now", self.pending.clone());
        r.register("outbox_claimed_total", "Messages CLAIMED now", self.claimed.clone());
        r.register(
            "outbox_failed_total",
            "Messages FAILED now, to be retried",
            self.failed.clone(),
        );
        r.register("outbox_dead_total", "Messages DEAD now", self.dead.clone());
        r.register(
            "outbox_lag_seconds",
            "How long the oldest due message has been due",
            self.lag.clone(),
        );
        r.register(
            "outbox_unrouted_total",
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
        r.register("outbox_claim_duration_ms", "Time to take a batch", self.claim_duration.clone());
        r.register(
            "outbox_delivery_duration_ms",
            "Time of one sink call",
            self.delivery_duration.clone(),
        );
    }

    pub(crate) fn settled(&self, integration: &str, phase: Phase, count: u64) {
        let label = OutcomeLabel { integration: integration.to_owned(), outcome: phase };
        self.deliveries.get_or_create(&label).inc_by(count);
        if phase == Phase::SENT {
            self.sent.get_or_create(&lane(integration)).inc_by(count);
        }
    }

    pub(crate) fn late(&self, count: u64) {
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

    pub(crate) fn claim_took(&self, time: Duration) {
        self.claim_duration.observe(time.as_secs_f64() * 1_000.0);
    }

    pub(crate) fn delivery_took(&self, integration: &str, time: Duration) {
        let histogram = self.delivery_duration.get_or_create(&lane(integration));
        histogram.observe(time.as_secs_f64() * 1_000.0);
    }

    /// Shows the backlog; lanes that have emptied since go to zero.
    pub(crate) fn backlog(&self, backlog: &Backlog, is_routed: impl Fn(&str) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let present: HashSet<String> =
            backlog.lanes.iter().map(|lane| lane.integration.clone()).collect();
        for gone in known.difference(&present) {
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
            let lag = Duration::from_millis(waiting.lag_ms);
            self.lag.get_or_create(&label).set(lag.as_secs_f64());
        }
        known.extend(present);
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a String cannot fail; an empty page would be the sign if it did.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

fn lane(integration: &str) -> LaneLabel {
    LaneLabel { integration: integration.to_owned() }
}
