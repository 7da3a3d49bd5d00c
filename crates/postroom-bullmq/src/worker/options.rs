//! How a worker works.

use bullmq::options::RedisConnectionOptions;
use std::time::Duration;

/// How often a job may be found without a worker before it fails.
const STALLED_MAX: u32 = 1;
/// How long BullMQ's client waits for a job before it looks again: a wake-up may be lost with
/// the worker that got it. Also how long it waits after an error.
const WAIT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(500);

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Recorded with each job that it runs, as `processedBy`.
    pub name: String,
    /// How many jobs run at the same time.
    pub concurrency: usize,
    /// How many jobs may start within a time, over all workers of the queue.
    pub rate: Option<Rate>,
    /// How long a job is a worker's before it has to ask for more time, which it does by itself.
    /// A job of a worker that was killed is run again after about this and `stalled_interval`.
    pub lock_time: Duration,
    /// How often to look for jobs that were left behind.
    pub stalled_interval: Duration,
    /// How long jobs may go on once the worker has to stop.
    pub grace: Duration,
}

/// How many jobs may start within a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    /// How many.
    pub jobs: u64,
    /// Within how long.
    pub per: Duration,
}

impl WorkerOptions {
    /// BullMQ's own defaults, for a worker of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            concurrency: 1,
            rate: None,
            lock_time: Duration::from_secs(30),
            stalled_interval: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }

    pub(super) fn for_client(
        &self,
        connection: RedisConnectionOptions,
        prefix: &str,
    ) -> bullmq::WorkerOptions {
        let mut options = bullmq::WorkerOptions::new()
            .connection(connection)
            .prefix(prefix)
            .name(&self.name)
            .concurrency(self.concurrency.max(1))
            .lock_duration(self.lock_time)
            .stalled_interval(self.stalled_interval)
            .max_stalled_count(STALLED_MAX)
            .drain_delay(WAIT)
            .run_retry_delay(RETRY)
            // It does not notice when a lock is lost; we renew them, and do.
            .skip_lock_renewal();
        if let Some(Rate { jobs, per }) = self.rate {
            let duration = u64::try_from(per.as_millis()).unwrap_or(u64::MAX);
            options = options.limiter(bullmq::RateLimiterOptions { max: jobs, duration });
        }
        options
    }
}
