//! Warnings that may come thousands of times a second.

use std::time::{Duration, Instant};

/// How long a warning is silent after it was logged.
const SILENCE: Duration = Duration::from_secs(10);

/// Lets a warning through now and then.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    since: u64,
}

impl Throttle {
    /// Counts an occurrence. If it is time to log, gives how many there were since the last time,
    /// this one included.
    pub(crate) fn report(&mut self) -> Option<u64> {
        self.since += 1;
        if self.last.is_some_and(|last| last.elapsed() < SILENCE) {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_a_burst_is_logged() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.report(), Some(1));
        assert_eq!(throttle.report(), None);
        throttle.last = Instant::now().checked_sub(SILENCE);
        assert_eq!(throttle.report(), Some(2));
    }
}
