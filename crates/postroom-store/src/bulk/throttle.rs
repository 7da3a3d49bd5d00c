//! So many messages per second.

use super::BATCH;
use std::num::NonZeroU32;
use std::time::Duration;
use tokio::time::Instant;

/// With a rate, this many batches make a second, so that nobody is hit by a second's worth at once.
const BATCHES_PER_SECOND: u32 = 10;

/// When the next batch may begin.
pub(super) struct Throttle {
    per_second: Option<NonZeroU32>,
    /// How many messages a batch has.
    pub(super) batch: usize,
    pub(super) next: Instant,
}

impl Throttle {
    pub(super) fn new(per_second: Option<NonZeroU32>) -> Self {
        let batch = per_second.map_or(BATCH, |rate| {
            let tenth = (rate.get() / BATCHES_PER_SECOND).max(1);
            BATCH.min(usize::try_from(tenth).unwrap_or(BATCH))
        });
        Self { per_second, batch, next: Instant::now() }
    }

    /// Time that was lost is not made up for: that would be a burst.
    pub(super) fn changed(&mut self, messages: u64, began: Instant) {
        if let Some(rate) = self.per_second {
            let seconds = messages as f64 / f64::from(rate.get());
            self.next = began + Duration::from_secs_f64(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rate_has_small_batches() {
        for (rate, batch) in [(1, 1), (50, 5), (1_000, 100), (1_000_000, BATCH)] {
            assert_eq!(Throttle::new(NonZeroU32::new(rate)).batch, batch);
        }
        assert_eq!(Throttle::new(None).batch, BATCH);
    }
}
