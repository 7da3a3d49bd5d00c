//! Cheap counts of what went through a group or a consumer.

use std::time::Duration;
use tokio::time::Instant;

/// How many messages there were, and how many per second lately.
#[derive(Debug)]
pub(super) struct Rate {
    total: u64,
    measured: u64,
    measured_at: Instant,
}

/// What a [`Rate`] says when it is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// How many there were.
    pub(super) total: u64,
    /// How many since it was last asked.
    pub(super) since: u64,
    /// How many per second since then.
    pub(super) per_second: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { total: 0, measured: 0, measured_at: Instant::now() }
    }
}

impl Rate {
    /// Counts one more.
    pub(super) fn count(&mut self) {
        self.total += 1;
    }

    /// The counts; measuring begins again.
    pub(super) fn measure(&mut self) -> Measured {
        let since = self.total - self.measured;
        let millis = self.measured_at.elapsed().as_millis().max(1);
        let per_second = u128::from(since) * 1_000 / millis;
        self.measured = self.total;
        self.measured_at = Instant::now();
        let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
        Measured { total: self.total, since, per_second }
    }
}

/// How long a consumer takes for a message.
#[derive(Debug, Default)]
pub(super) struct Latency {
    count: u64,
    sum: Duration,
    fastest: Option<Duration>,
    slowest: Duration,
}

impl Latency {
    /// A message was finished after this long.
    pub(super) fn record(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        self.fastest = Some(self.fastest.map_or(took, |fastest| fastest.min(took)));
        self.slowest = self.slowest.max(took);
    }

    /// The figures in milliseconds, by the names that real servers give them.
    pub(super) fn figures(&self) -> Vec<(&'static str, u64)> {
        let Some(fastest) = self.fastest else { return Vec::new() };
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let mean = millis(self.sum) / self.count.max(1);
        vec![("Mean", mean), ("Fastest", millis(fastest)), ("Highest", millis(self.slowest))]
    }
}
