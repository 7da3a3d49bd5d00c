//! Frees what relays that died have left behind.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::{StoreError, StoreErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The most claims freed in one transaction.
const RESCUE_MAX: usize = 100;

/// Looks often enough that a dead relay's messages move soon after their claim time.
pub(crate) async fn run(shared: Arc<Shared>) {
    let interval =
        (shared.settings.claim_time / 10).clamp(Duration::from_millis(50), Duration::from_secs(3));
    loop {
        if let Err(error) = rescue(&shared).await {
            upkeep_failed("rescuing expired claims", &error);
            if error.kind == StoreErrorKind::Unavailable {
                wait_for_the_others(&shared, interval).await;
            }
        }
        about(&shared, interval).await;
    }
}

/// Frees all expired claims but those that this process holds itself, directly or in queues: what it
/// knows of their messages is still to be recorded, or their delivery is under way.
pub(crate) async fn rescue(shared: &Shared) -> Result<(), StoreError> {
    let mut most = RESCUE_MAX;
    loop {
        let freed = match shared.store.rescue_except(shared.presence.id(), most).await {
            Ok(freed) => freed,
            // Claims of many messages may take longer than a call may: then fewer at once.
            Err(error) if error.kind == StoreErrorKind::Unavailable && most > 1 => {
                most = (most / 10).max(1);
                continue;
            }
            Err(error) => return Err(error),
        };
        if freed == 0 {
            return Ok(());
        }
        tracing::warn!(messages = freed, "rescued messages whose claim had expired");
        shared.metrics.rescued(freed);
        shared.expect_rescued();
        shared.rescued.notify_one();
    }
}

/// Waits until the database answers again. After an outage in which no heartbeat came
/// through, waits long enough that every relay that lives has sent one.
async fn wait_for_the_others(shared: &Shared, interval: Duration) {
    let (began, claim_time) = (Instant::now(), shared.settings.claim_time);
    loop {
        about(shared, interval).await;
        match shared.store.ready().await {
            Ok(()) => break,
            Err(error) => upkeep_failed("waiting for the database", &error),
        }
    }
    if began.elapsed() >= claim_time / 3 {
        tokio::time::sleep(claim_time / 2).await;
    }
}
