//! What a store remembers of the lanes it takes from, between two takes.

use postroom_core::Quota;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long parcels below the marks may go unseen while every take is full.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How often the low-water marks are raised.
const RISE_EVERY: Duration = Duration::from_secs(1);
/// How long a raise may be put off while messages wait for their delivery.
const RISE_AT_LEAST_EVERY: Duration = Duration::from_secs(3);
/// How many parcels a take looks at in each lane at the least.
const LOOK_AT_LEAST: i32 = 16;

#[derive(Debug)]
pub(super) struct Lanes {
    /// Those whose cursor is there.
    known: Mutex<HashMap<String, Lane>>,
    /// How many messages a parcel named on average, the last time.
    per_parcel: AtomicI32,
    /// Deliveries were due, the last time.
    expects_due: AtomicBool,
    /// Parcels were late, the last time.
    expects_late: AtomicBool,
}

#[derive(Debug)]
struct Lane {
    /// The first of the takes that were all full: nobody has looked below the mark since.
    unswept_since: Option<Instant>,
    risen_at: Instant,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            per_parcel: AtomicI32::new(1),
            expects_due: AtomicBool::new(true),
            expects_late: AtomicBool::new(false),
        }
    }
}

impl Lanes {
    /// Those whose cursor may be missing.
    pub(super) fn unknown(&self, quotas: &[Quota]) -> Vec<String> {
        let known = self.known();
        let names = quotas.iter().map(|quota| &quota.integration);
        names.filter(|name| !known.contains_key(*name)).cloned().collect()
    }

    pub(super) fn learn(&self, names: Vec<String>) {
        let lane = || Lane { unswept_since: None, risen_at: Instant::now() };
        self.known().extend(names.into_iter().map(|name| (name, lane())));
    }

    /// Some lane has no cursor after all: a standby that did not have it has taken over, or a dump was
    /// restored. The next take makes it again.
    pub(super) fn forget(&self) {
        self.known().clear();
    }

    /// How many parcels to look at in each lane for so many messages. Those of full parcels are few; to
    /// read as many as there may be of small ones would cost more than the take.
    pub(super) fn look_at(&self, rows: i32) -> i32 {
        let enough = rows / self.per_parcel.load(Ordering::Relaxed).max(1);
        enough.saturating_mul(2).saturating_add(LOOK_AT_LEAST)
    }

    /// What a take found in parcels.
    pub(super) fn took(&self, parcels: i64, messages: i64) {
        let average = i32::try_from(messages / parcels.max(1)).unwrap_or(1);
        self.per_parcel.store(average, Ordering::Relaxed);
    }

    pub(super) fn expect_due(&self, due: bool) {
        self.expects_due.store(due, Ordering::Relaxed);
    }

    /// Whether deliveries are likely to be due.
    pub(super) fn expects_due(&self) -> bool {
        self.expects_due.load(Ordering::Relaxed)
    }

    /// Whether the next take looks below the marks as well: late parcels come together, and they do not
    /// wait for long while every take is full.
    pub(super) fn is_to_sweep(&self, quotas: &[Quota]) -> bool {
        let known = self.known();
        let is_overdue = |quota: &Quota| {
            let lane = known.get(&quota.integration);
            lane.and_then(|lane| lane.unswept_since).is_some_and(|at| at.elapsed() >= SWEEP_EVERY)
        };
        self.expects_late.load(Ordering::Relaxed) || quotas.iter().any(is_overdue)
    }

    /// Parcels were given back: they lie below the marks.
    pub(super) fn expect_late(&self) {
        self.expects_late.store(true, Ordering::Relaxed);
    }

    /// Somebody is about to look below the marks. Should that fail, the takes after it do not try again and
    /// again.
    pub(super) fn sweeping(&self, quotas: &[Quota]) {
        self.expects_late.store(false, Ordering::Relaxed);
        self.looked(quotas, |_| false);
    }

    /// Whether a take found late parcels. It has not looked for them in lanes that are `full`, by their
    /// place among the quotas.
    pub(super) fn swept(&self, quotas: &[Quota], full: &[usize], late: bool) {
        self.expects_late.store(late, Ordering::Relaxed);
        self.looked(quotas, |place| full.contains(&place));
    }

    fn looked(&self, quotas: &[Quota], is_full: impl Fn(usize) -> bool) {
        let mut known = self.known();
        for (place, quota) in quotas.iter().enumerate() {
            if let Some(lane) = known.get_mut(&quota.integration) {
                let since = is_full(place).then(|| lane.unswept_since.unwrap_or_else(Instant::now));
                lane.unswept_since = since;
            }
        }
    }

    /// Whether it is time to raise the low-water marks of these lanes; once per time. That can wait a little
    /// while messages that were `taken` wait for their delivery.
    pub(super) fn is_to_rise(&self, quotas: &[Quota], taken: bool) -> bool {
        let every = if taken { RISE_AT_LEAST_EVERY } else { RISE_EVERY };
        let mut known = self.known();
        let is_due = |quota: &Quota| {
            known.get(&quota.integration).is_some_and(|lane| lane.risen_at.elapsed() >= every)
        };
        if !quotas.iter().any(is_due) {
            return false;
        }
        for quota in quotas {
            if let Some(lane) = known.get_mut(&quota.integration) {
                lane.risen_at = Instant::now();
            }
        }
        true
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Lane>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
