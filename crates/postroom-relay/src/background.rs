//! Running something again and again, and surviving a database that is away.

use crate::health::describe;
use postroom_core::{StoreError, StoreErrorKind};
use rand::RngExt;
use std::time::Duration;

/// Waits about `interval`: up to a fifth sooner, so that relays do not act together.
pub(crate) async fn about(interval: Duration) {
    let share = rand::rng().random_range(0.8..=1.0);
    tokio::time::sleep(interval.mul_f64(share)).await;
}

/// Says that upkeep failed. While the database is away the claimer says so, once for all.
pub(crate) fn upkeep_failed(what: &str, error: &StoreError) {
    match error.kind {
        StoreErrorKind::Unavailable | StoreErrorKind::Conflict => {
            tracing::debug!(what, error = describe(error), "upkeep failed; it is tried again");
        }
        StoreErrorKind::Schema | StoreErrorKind::Refused => {
            tracing::error!(what, error = describe(error), "upkeep failed; it is tried again");
        }
    }
}
