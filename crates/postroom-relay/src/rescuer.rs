//! Frees what relays that died have left behind.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::StoreError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most claims freed in one transaction.
const RESCUE_MAX: usize = 100;

/// Looks often enough that a dead relay's messages move soon after their claim time.
pub(crate) async fn run(shared: Arc<Shared>) {
    let interval =
        (shared.settings.claim_time / 10).clamp(Duration::from_millis(50), Duration::from_secs(3));
    loop {
        if let Err(error) = rescue(&shared).await {
            upkeep_failed("rescuing expired claims", &error);
        }
        about(&shared, interval).await;
    }
}

/// Frees all expired claims.
pub(crate) async fn rescue(shared: &Shared) -> Result<(), StoreError> {
    loop {
        let freed = shared.store.rescue(RESCUE_MAX).await?;
        if freed == 0 {
            return Ok(());
        }
        tracing::warn!(messages = freed, "rescued messages whose claim had expired");
        shared.metrics.rescued(freed);
        shared.rescued.store(true, Ordering::Release);
        shared.room_freed.notify_one();
    }
}
