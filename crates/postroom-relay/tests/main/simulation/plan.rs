//! What a seed says: what is produced, who relays it, what breaks and when.

use super::ms;
use postroom_core::RetryPolicy;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// Everything that is decided before the run begins.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) lanes: Vec<LanePlan>,
    pub(super) relays: Vec<RelayPlan>,
    pub(super) messages: Vec<MessagePlan>,
    /// What producers do, and with which of the messages.
    pub(super) inserts: Vec<InsertPlan>,
    /// By time.
    pub(super) faults: Vec<(Duration, Fault)>,
    /// When the last fault has ended.
    pub(super) healed_at: Duration,
    /// How often a database call fails for no reason, until then.
    pub(super) error_rate: f64,
    pub(super) dead_letter: bool,
}

#[derive(Debug)]
pub(super) struct LanePlan {
    pub(super) concurrency: usize,
    pub(super) batch_size: usize,
    pub(super) timeout: Duration,
    pub(super) retry: RetryPolicy,
}

#[derive(Debug)]
pub(super) struct RelayPlan {
    pub(super) claim_time: Duration,
    pub(super) poll_interval: Duration,
    pub(super) batch_size: usize,
    pub(super) stop_limit: Duration,
}

/// One statement of one producer.
#[derive(Clone, Debug)]
pub(super) struct InsertPlan {
    pub(super) at: Duration,
    /// Which of the messages.
    pub(super) messages: Range<usize>,
    /// How long its transaction stays open. Numbers are drawn at the beginning: those of a younger
    /// transaction that ends earlier are higher, and are seen first.
    pub(super) open_for: Duration,
    /// A transaction that is rolled back leaves nothing.
    pub(super) commits: bool,
}

#[derive(Debug)]
pub(super) struct MessagePlan {
    pub(super) lane: usize,
    pub(super) max_attempts: u32,
    /// From its insertion until it is due: one that is due within a second is fresh all the same.
    pub(super) delay: Duration,
    /// What the destination does with its first attempts; then it accepts.
    pub(super) acts: Vec<Act>,
}

/// What a destination does with one attempt at a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Act {
    Accept(Duration),
    Retry(Duration),
    Reject,
    Refuse,
    /// The relay that delivers it dies.
    Kill,
    /// The work is done, and then the sink panics.
    Panic,
    /// The work is done, and the sink says nothing of it.
    Silence,
    /// The work is done, and the sink never returns.
    Stall,
}

/// What breaks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A relay's process dies; a new one starts after this time.
    Crash { relay: usize, back_after: Duration },
    /// A relay is asked to stop; a new one starts after this time.
    Stop { relay: usize, back_after: Duration },
    /// A relay gets no turns.
    Pause { relay: usize, lasts: Duration },
    /// One relay's heartbeats do not get through.
    NoHeartbeat { relay: usize, lasts: Duration },
    /// The database is away for all.
    Outage { lasts: Duration },
    /// The database answers slowly, for all.
    Slow { lasts: Duration },
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let trouble = ms(rng.random_range(2_000..12_000));
        let lanes: Vec<_> = (0..rng.random_range(1..=3)).map(|_| LanePlan::draw(rng)).collect();
        let relays: Vec<_> = (0..rng.random_range(1..=3)).map(|_| RelayPlan::draw(rng)).collect();
        let messages: Vec<_> =
            (0..rng.random_range(4..=24)).map(|_| MessagePlan::draw(rng, lanes.len())).collect();
        let inserts = InsertPlan::draw_all(rng, messages.len(), trouble);
        let mut faults: Vec<_> = (0..rng.random_range(0..=7))
            .map(|_| (within(rng, ms(0), trouble), Fault::draw(rng, relays.len())))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let end = |(at, fault): &(Duration, Fault)| *at + fault.lasts();
        let healed_at = faults.iter().map(end).max().unwrap_or_default().max(trouble);
        let error_rate = *pick(rng, &[0.0, 0.02, 0.1]);
        let dead_letter = rng.random();
        Self { lanes, relays, messages, inserts, faults, healed_at, error_rate, dead_letter }
    }
}

impl LanePlan {
    fn draw(rng: &mut StdRng) -> Self {
        let base = within(rng, ms(1), ms(1_500));
        let retry = RetryPolicy { base, cap: base * 4, jitter: base / 2, ..RetryPolicy::default() };
        Self {
            concurrency: rng.random_range(1..=3),
            batch_size: rng.random_range(1..=5),
            timeout: within(rng, ms(500), ms(6_000)),
            retry,
        }
    }
}

impl RelayPlan {
    fn draw(rng: &mut StdRng) -> Self {
        Self {
            claim_time: within(rng, ms(1_000), ms(5_000)),
            poll_interval: within(rng, ms(200), ms(1_000)),
            batch_size: rng.random_range(1..=10),
            stop_limit: within(rng, ms(0), ms(3_000)),
        }
    }
}

impl InsertPlan {
    /// Every message is inserted once: alone, or with others.
    fn draw_all(rng: &mut StdRng, messages: usize, trouble: Duration) -> Vec<Self> {
        let mut inserts = Vec::new();
        let mut first = 0;
        while first < messages {
            let together = if rng.random_bool(0.6) { 1 } else { rng.random_range(2..=12) };
            let last = messages.min(first + together);
            let is_slow = rng.random_bool(0.4);
            inserts.push(Self {
                at: within(rng, ms(0), trouble),
                messages: first..last,
                open_for: if is_slow { within(rng, ms(1), ms(6_000)) } else { ms(0) },
                commits: rng.random_bool(0.9),
            });
            first = last;
        }
        inserts
    }
}

impl MessagePlan {
    fn draw(rng: &mut StdRng, lanes: usize) -> Self {
        let acts = if rng.random_bool(0.5) { rng.random_range(1..=4) } else { 0 };
        let mut acts: Vec<Act> = (0..acts).map(|_| Act::draw(rng)).collect();
        if rng.random_bool(0.03) {
            acts = vec![Act::Kill; rng.random_range(1..=12)];
        }
        Self {
            lane: rng.random_range(0..lanes),
            max_attempts: rng.random_range(1..=4),
            delay: if rng.random_bool(0.2) { within(rng, ms(1), ms(3_000)) } else { ms(0) },
            acts,
        }
    }
}

impl Act {
    fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..20) {
            0..=5 => Self::Accept(within(rng, ms(0), ms(4_000))),
            6..=11 => Self::Retry(within(rng, ms(0), ms(1_000))),
            12 => Self::Reject,
            13 => Self::Refuse,
            14..=15 => Self::Panic,
            16..=17 => Self::Silence,
            _ => Self::Stall,
        }
    }
}

impl Fault {
    fn draw(rng: &mut StdRng, relays: usize) -> Self {
        let relay = rng.random_range(0..relays);
        match rng.random_range(0..12) {
            0..=3 => Self::Crash { relay, back_after: within(rng, ms(0), ms(4_000)) },
            4 => Self::Stop { relay, back_after: within(rng, ms(0), ms(2_000)) },
            5..=7 => Self::Pause { relay, lasts: within(rng, ms(500), ms(9_000)) },
            8..=9 => Self::NoHeartbeat { relay, lasts: within(rng, ms(2_000), ms(9_000)) },
            10 => Self::Outage { lasts: within(rng, ms(100), ms(8_000)) },
            _ => Self::Slow { lasts: within(rng, ms(500), ms(6_000)) },
        }
    }

    fn lasts(&self) -> Duration {
        match *self {
            Self::Crash { back_after, .. } | Self::Stop { back_after, .. } => back_after,
            Self::Pause { lasts, .. }
            | Self::NoHeartbeat { lasts, .. }
            | Self::Outage { lasts }
            | Self::Slow { lasts } => lasts,
        }
    }
}

pub(super) fn within(rng: &mut StdRng, least: Duration, most: Duration) -> Duration {
    least + (most - least).mul_f64(rng.random())
}

fn pick<'a, T>(rng: &mut StdRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}
