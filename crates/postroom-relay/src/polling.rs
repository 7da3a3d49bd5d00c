//! How fast to look again.

use crate::jitter::Jitter;
use std::time::Duration;
use tokio::time::Instant;

/// Doubling pauses with jitter, for a database that is away.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(5);

    /// From the shortest pause on.
    #[must_use]
    pub fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// Back to the shortest.
    pub fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// The next pause: between half and all of it, so that relays do not return together.
    pub fn pause(&mut self, jitter: &Jitter) -> Duration {
        let pause = jitter.share(self.next, 0.5);
        self.next = (self.next * 2).min(Self::CAP);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether messages come thick enough that waiting for a signal each time costs more than
/// looking again: NOTIFY in every commit would serialise the producers.
#[derive(Debug)]
pub struct Heat {
    hot: bool,
    quick: u32,
    last_found: Option<Instant>,
}

impl Heat {
    /// Finds that follow each other within this are quick.
    const QUICK: Duration = Duration::from_millis(10);
    /// This many quick finds in a row make it hot.
    const ENOUGH: u32 = 4;
    /// Nothing found for this long makes it cold again.
    const COOLS: Duration = Duration::from_millis(100);
    /// How often a hot relay looks.
    pub const LOOK: Duration = Duration::from_millis(3);

    /// Cold.
    #[must_use]
    pub fn new() -> Self {
        Self { hot: false, quick: 0, last_found: None }
    }

    /// Whether to look again without waiting for a signal.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// Notes a find; whether it became hot by it. `full` says that more is waiting.
    pub fn found(&mut self, full: bool, now: Instant) -> bool {
        let quick = self.last_found.is_some_and(|last| now - last < Self::QUICK);
        self.quick = if quick || full { self.quick + 1 } else { 0 };
        self.last_found = Some(now);
        let was_hot = self.hot;
        self.hot = self.hot || self.quick >= Self::ENOUGH;
        self.hot && !was_hot
    }

    /// Notes that nothing was due; whether it cooled down by it.
    pub fn found_nothing(&mut self, now: Instant) -> bool {
        let cools = self.hot && self.last_found.is_none_or(|last| now - last >= Self::COOLS);
        if cools {
            self.hot = false;
            self.quick = 0;
        }
        cools
    }
}

impl Default for Heat {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_stays_cold_and_a_stream_gets_hot_until_it_dries_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut heat = Heat::new();
        for n in 0..20 {
            assert!(!heat.found(false, at(n * 50)));
        }
        assert!((0..10).any(|n| heat.found(false, at(2_000 + n))));
        assert!(!heat.found_nothing(at(2_050)));
        assert!(heat.is_hot());
        assert!(heat.found_nothing(at(2_200)));
        assert!(!heat.is_hot());
    }

    #[test]
    fn full_batches_make_it_hot() {
        let mut heat = Heat::new();
        let now = Instant::now();
        assert!((0..4).any(|n| heat.found(true, now + Duration::from_secs(n))));
    }

    #[test]
    fn pauses_grow_to_a_cap_and_reset() {
        let (mut backoff, jitter) = (Backoff::new(), Jitter::new(None));
        for _ in 0..20 {
            assert!(backoff.pause(&jitter) <= Backoff::CAP);
        }
        assert!(backoff.pause(&jitter) >= Backoff::CAP / 2);
        backoff.reset();
        assert!(backoff.pause(&jitter) <= Backoff::FIRST);
    }
}
