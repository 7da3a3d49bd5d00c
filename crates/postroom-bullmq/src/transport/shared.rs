//! What all parts of the transport share.

use super::faults::{Faults, Who};
use super::finished_jobs::ReadSize;
use super::lanes::QueueLane;
use super::outage::Outage;
use super::outstanding::OutstandingJobs;
use super::tenants::Turns;
use crate::error::QueueError;
use crate::server::Redis;
use postroom_core::{Message, Store, StoreError, StoreErrorKind, StoreResult, with_causes};
use postroom_relay::{Backoff, DeadlineStore, Jitter, Metrics, Pauses, Presence, Settings};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After this many conflicts in a row it is no bad luck any more, nor after one that took so long:
/// somebody has locked a message and keeps it.
pub(crate) const CONFLICTS_AT_ONCE: u32 = 5;
const CONFLICT_LONG: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    /// With deadlines; the same as `deadlines`, for whom it is just a store.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) deadlines: Arc<DeadlineStore>,
    pub(crate) redis: Redis,
    pub(crate) settings: Settings,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) jitter: Jitter,
    pub(crate) outstanding: Arc<OutstandingJobs>,
    /// What keeps this process's claims.
    pub(crate) presence: Arc<Presence>,
    pub(crate) turns: Turns,
    pub(crate) read_size: ReadSize,
    pub(crate) faults: Faults,
    pub(crate) redis_outage: Outage,
    pub(crate) database_outage: Outage,
}

pub(crate) struct LaneState {
    pub(crate) lane: QueueLane,
    pub(crate) pauses: Pauses,
}

impl Shared {
    /// The lane of an integration.
    pub(crate) fn lane(&self, integration: &str) -> Option<usize> {
        self.lanes.iter().position(|state| state.lane.integration == integration)
    }

    /// The lane of a message whose job is in this queue, if that is where its job belongs. Several
    /// lanes may share a queue.
    pub(crate) fn lane_in(&self, queue: &str, message: &Message) -> Option<&LaneState> {
        let state = &self.lanes[self.lane(&message.integration)?];
        (state.lane.queue.of(message) == queue).then_some(state)
    }

    /// Asks the store until it has an answer, however long it is away. Only what it refuses is an
    /// error.
    pub(crate) async fn retry<T, F>(&self, ask: impl Fn() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
    {
        self.retry_unless_locked(ask, None).await
    }

    /// The same; after `patience` conflicts, or a long one, that is an error too.
    pub(crate) async fn retry_unless_locked<T, F>(
        &self,
        ask: impl Fn() -> F,
        patience: Option<u32>,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
    {
        let mut backoff = Backoff::new();
        let mut conflicts = 0;
        loop {
            let began = Instant::now();
            let error = match ask().await {
                Ok(answer) => {
                    self.database_outage.end();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let pause = match error.kind {
                StoreErrorKind::Refused => return Err(error),
                StoreErrorKind::Conflict
                    if patience.is_some_and(|most| {
                        conflicts >= most || began.elapsed() >= CONFLICT_LONG
                    }) =>
                {
                    return Err(error);
                }
                StoreErrorKind::Conflict if conflicts < CONFLICTS_AT_ONCE => {
                    conflicts += 1;
                    Duration::from_millis(1)
                }
                StoreErrorKind::Conflict => backoff.pause(&self.jitter),
                StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
                    self.database_away(&error);
                    backoff.pause(&self.jitter)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    pub(crate) fn database_away(&self, error: &StoreError) {
        self.database_outage.begin(with_causes(error));
    }

    /// Notes what went wrong with a queue: with all of Redis, or with this queue alone.
    pub(crate) fn redis_fails(&self, queue: &str, who: Who, error: &QueueError) {
        if error.is_away() {
            self.redis_away(error);
        } else {
            self.faults.begin(queue, who, error);
        }
    }

    pub(crate) fn redis_away(&self, error: &QueueError) {
        self.redis_outage.begin(with_causes(error));
    }

    /// How often jobs are looked at: three times within a claim time.
    pub(crate) fn interval(&self) -> Duration {
        self.settings.claim_time / 3
    }
}
