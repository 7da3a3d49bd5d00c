//! What all parts of the transport share.

use super::books::Books;
use super::lanes::QueueLane;
use super::outage::Outage;
use super::tenants::Turns;
use crate::error::QueueError;
use crate::server::Redis;
use postroom_core::{Store, StoreError, StoreErrorKind, StoreResult};
use postroom_relay::{Backoff, Chance, Metrics, Pauses, Settings, describe};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) redis: Redis,
    pub(crate) settings: Settings,
    pub(crate) lanes: Vec<LaneState>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) chance: Chance,
    pub(crate) books: Books,
    pub(crate) turns: Turns,
    pub(crate) redis_outage: Outage,
    pub(crate) database_outage: Outage,
}

pub(crate) struct LaneState {
    pub(crate) lane: QueueLane,
    pub(crate) pauses: Pauses,
}

impl Shared {
    /// Asks the store until it has an answer, however long it is away. Only what it refuses is an
    /// error.
    pub(crate) async fn insist<T, F>(&self, ask: impl Fn() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>> + Send,
    {
        let mut backoff = Backoff::new();
        let mut conflicts = 0;
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    self.database_outage.end();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let pause = match error.kind {
                StoreErrorKind::Refused => return Err(error),
                StoreErrorKind::Conflict if conflicts < 5 => {
                    conflicts += 1;
                    Duration::from_millis(1)
                }
                StoreErrorKind::Conflict => backoff.pause(&self.chance),
                StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
                    self.database_away(&error);
                    backoff.pause(&self.chance)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    pub(crate) fn database_away(&self, error: &StoreError) {
        self.database_outage.begin(describe(error));
    }

    pub(crate) fn redis_away(&self, error: &QueueError) {
        self.redis_outage.begin(describe(error));
    }

    /// How often jobs are looked at and claims extended: three times within a claim's time.
    pub(crate) fn interval(&self) -> Duration {
        self.settings.claim_time / 3
    }
}
