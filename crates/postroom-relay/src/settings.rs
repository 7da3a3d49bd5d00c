//! What a relay is told.

use postroom_core::{Limits, RetryPolicy, Sink};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// One integration's path through the relay.
#[derive(Clone)]
pub struct Lane {
    /// The integration it serves.
    pub integration: String,
    /// Where it delivers.
    pub sink: Arc<dyn Sink>,
    /// How many sink calls run at once.
    pub concurrency: usize,
    /// The most messages per sink call; the sink may allow fewer.
    pub batch_size: usize,
    /// How long one sink call may take.
    pub timeout: Duration,
    /// When a failed message is due again, and when it is dead.
    pub retry: RetryPolicy,
}

impl Lane {
    /// A lane with the default settings: 16 calls at once, 100 messages per call, 30 s each.
    pub fn new(integration: impl Into<String>, sink: Arc<dyn Sink>) -> Self {
        Self {
            integration: integration.into(),
            sink,
            concurrency: 16,
            batch_size: 100,
            timeout: Duration::from_secs(30),
            retry: RetryPolicy::default(),
        }
    }

    /// The most messages one sink call carries.
    pub(crate) fn call_max(&self) -> usize {
        self.batch_size.min(self.sink.batch_max()).max(1)
    }
}

/// How a relay works, over all its lanes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name claims are made under; must differ between relays.
    pub worker: String,
    /// How often to look for due messages when nothing signals them.
    pub poll_interval: Duration,
    /// The most messages taken at once for one lane.
    pub batch_size: usize,
    /// How long claims last after the relay's last heartbeat: one that dies holds its messages
    /// this long.
    pub claim_time: Duration,
    /// Messages with a larger payload go DEAD.
    pub payload_limit: usize,
    /// The integration that is told of dead messages.
    pub dead_letter: Option<String>,
    /// A longer lag is an alert.
    pub lag_threshold: Duration,
    /// How long SENT messages are kept; `Duration::MAX`: for ever.
    pub keep_sent: Duration,
    /// How long a stop waits for what is in flight. Recording what came of it may take a second
    /// more.
    pub stop_limit: Duration,
    /// What jitter is drawn from: the same seed repeats a run under virtual time. `None` for
    /// randomness that differs each time.
    pub seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            worker: format!("postroom-{}-{}", std::process::id(), Uuid::new_v4().simple()),
            poll_interval: Duration::from_millis(100),
            batch_size: 100,
            claim_time: Duration::from_secs(30),
            payload_limit: Limits::default().payload_bytes,
            dead_letter: None,
            lag_threshold: Duration::from_secs(5),
            keep_sent: Duration::from_secs(7 * 24 * 60 * 60),
            stop_limit: Duration::from_secs(10),
            seed: None,
        }
    }
}
