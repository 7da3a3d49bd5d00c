//! The end of a stage's work, and how long it may take.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is decided when a stop's time is up is still recorded, within this.
pub(crate) const RECORD_LIMIT: Duration = Duration::from_secs(1);

/// Says once that it is time to stop, and until when. All stages share one deadline, so that a
/// stop takes no longer for having many of them.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    deadline: OnceLock<Instant>,
    begun: Notify,
}

impl Stop {
    /// Begins the stop. Only the first call counts.
    pub(crate) fn begin(&self, deadline: Instant) {
        if self.deadline.set(deadline).is_ok() {
            self.begun.notify_waiters();
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// Waits for the stop, and returns until when what is in flight may take.
    pub(crate) async fn begun(&self) -> Instant {
        loop {
            // Made before the look: a stop that begins in between is not missed.
            let begun = self.begun.notified();
            if let Some(deadline) = self.deadline.get() {
                return *deadline;
            }
            begun.await;
        }
    }

    /// Waits until nothing may be recorded any more.
    pub(crate) async fn over(&self) {
        let deadline = self.begun().await;
        tokio::time::sleep_until(deadline + RECORD_LIMIT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_learns_of_the_stop_however_late_they_ask() {
        let stop = Stop::default();
        assert!(!stop.has_begun());
        let deadline = Instant::now() + Duration::from_secs(1);
        let begin = async { stop.begin(deadline) };
        let (first, second, ()) = tokio::join!(stop.begun(), stop.begun(), begin);
        stop.begin(deadline + Duration::from_secs(1));
        assert_eq!([first, second, stop.begun().await], [deadline; 3]);
    }
}
