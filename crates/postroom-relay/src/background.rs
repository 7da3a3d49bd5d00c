//! Running something again and again, and surviving a database that is away.

use crate::relay::Shared;
use postroom_core::{StoreError, StoreErrorKind, with_causes};
use std::time::Duration;

/// Waits about `interval`: up to a fifth sooner, so that relays do not act together.
pub(crate) async fn about(shared: &Shared, interval: Duration) {
    tokio::time::sleep(shared.jitter.share(interval, 0.8)).await;
}

/// Says that upkeep failed. While the database is away the claimer says so, once for all.
pub(crate) fn upkeep_failed(what: &str, error: &StoreError) {
    match error.kind {
        StoreErrorKind::Unavailable | StoreErrorKind::Conflict => {
            tracing::debug!(what, error = with_causes(error), "upkeep failed; it is tried again");
        }
        StoreErrorKind::Schema | StoreErrorKind::Refused => {
            tracing::error!(what, error = with_causes(error), "upkeep failed; it is tried again");
        }
    }
}
