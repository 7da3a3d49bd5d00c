//! What a store remembers of the lanes it takes from, between two takes.

use postroom_core::Quota;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
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
    known: Mutex<HashSet<String>>,
    /// How many messages a parcel named on average, the last time.
    per_parcel: AtomicI32,
    /// Deliveries were due, the last time.
    expects_due: AtomicBool,
    /// Parcels were late, the last time.
    expects_late: AtomicBool,
    swept_at: Mutex<Instant>,
    risen_at: Mutex<Instant>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            per_parcel: AtomicI32::new(1),
            expects_due: AtomicBool::new(true),
            expects_late: AtomicBool::new(true),
            swept_at: Mutex::new(Instant::now()),
            risen_at: Mutex::new(Instant::now()),
        }
    }
}

impl Lanes {
    /// Those whose cursor may be missing.
    pub(super) fn unknown(&self, quotas: &[Quota]) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let names = quotas.iter().map(|quota| &quota.integration);
        names.filter(|name| !known.contains(*name)).cloned().collect()
    }

    pub(super) fn learn(&self, names: Vec<String>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// Some lane has no cursor after all: a standby that did not have it has taken over, or a dump was
    /// restored. The next take makes it again.
    pub(super) fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
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

    /// Whether there were parcels that nobody holds below the marks, where a take has looked for them.
    pub(super) fn expect_late(&self, late: bool) {
        self.expects_late.store(late, Ordering::Relaxed);
        *self.swept_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether the next take looks below the marks as well: late parcels come together, and they do not
    /// wait for long while every take is full.
    pub(super) fn expects_late(&self) -> bool {
        self.expects_late.load(Ordering::Relaxed)
            || self.swept_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= SWEEP_EVERY
    }

    /// Whether it is time to raise the low-water marks; once per time. That can wait a little while
    /// messages are to be `delivered`.
    pub(super) fn is_to_rise(&self, delivered: bool) -> bool {
        let every = if delivered { RISE_AT_LEAST_EVERY } else { RISE_EVERY };
        let mut risen_at = self.risen_at.lock().unwrap_or_else(PoisonError::into_inner);
        if risen_at.elapsed() < every {
            return false;
        }
        *risen_at = Instant::now();
        true
    }
}
