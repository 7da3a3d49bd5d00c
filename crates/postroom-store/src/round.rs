//! Looking through a table some rows at a time, round after round.

use std::sync::atomic::{AtomicI64, Ordering};

/// How far a round has come, by number. Every process goes its own: what one has looked at,
/// another may look at again.
#[derive(Debug)]
pub(crate) struct Round(AtomicI64);

impl Default for Round {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Round {
    /// The last number that was looked at.
    pub(crate) fn after(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on after what was looked at, in order; after nothing, at the end, from the beginning.
    pub(crate) fn note(&self, seen: &[i64]) {
        self.0.store(seen.last().copied().unwrap_or(i64::MIN), Ordering::Relaxed);
    }
}
