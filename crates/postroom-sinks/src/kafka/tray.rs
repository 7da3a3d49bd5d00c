//! Where what librdkafka has settled is put, until the batch it belongs to takes it.

use rdkafka::error::RDKafkaErrorCode as Code;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often a batch looks at what has come back before all of it has.
const LOOK: Duration = Duration::from_millis(10);

/// What came of a message: nothing is wrong, or what is.
pub(super) type Settled = (usize, Option<Code>);

/// What has come back of one batch. Whoever waits is woken for the last message and not for each:
/// a wake costs more than a message does.
#[derive(Debug, Default)]
pub(super) struct Tray {
    settled: Mutex<Vec<Settled>>,
    /// How many have not come back.
    expected: AtomicUsize,
    is_complete: Notify,
}

impl Tray {
    /// Expects one more.
    pub(super) fn expect(&self) {
        self.expected.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them does not come back.
    pub(super) fn expect_less(&self) {
        if self.expected.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.is_complete.notify_one();
        }
    }

    /// Puts one that has come back.
    pub(super) fn put(&self, settled: Settled) {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).push(settled);
        self.expect_less();
    }

    /// Takes what has come back, and waits for it until then.
    pub(super) async fn take(&self, until: Instant) -> Vec<Settled> {
        loop {
            let look = until.min(Instant::now() + LOOK);
            let is_last = tokio::time::timeout_at(look, self.is_complete.notified()).await.is_err()
                && look == until;
            let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
            if is_last || !settled.is_empty() {
                return std::mem::take(&mut settled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_is_there_is_taken_at_once_or_at_the_next_look() {
        let tray = Tray::default();
        (0..3).for_each(|_| tray.expect());
        tray.put((0, None));
        tray.put((1, Some(Code::QueueFull)));
        assert_eq!(tray.take(soon()).await, [(0, None), (1, Some(Code::QueueFull))]);
        tray.put((2, None));
        let before = Instant::now();
        assert_eq!(tray.take(soon()).await, [(2, None)]);
        assert_eq!(Instant::now(), before, "the last one wakes");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_back_is_waited_for_until_then() {
        let tray = Tray::default();
        tray.expect();
        let until = Instant::now() + Duration::from_secs(1);
        assert_eq!(tray.take(until).await, []);
        assert!(Instant::now() >= until);
    }
}
