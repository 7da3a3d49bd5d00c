//! Deletes SENT messages after their retention, a little at a time.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::StoreError;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(60);
const PRUNE_MAX: usize = 1_000;
/// Room for others between two batches.
const BREATH: Duration = Duration::from_millis(20);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        about(&shared, INTERVAL).await;
        if let Err(error) = prune(&shared).await {
            upkeep_failed("pruning", &error);
        }
    }
}

/// Deletes all that is old enough.
pub(crate) async fn prune(shared: &Shared) -> Result<(), StoreError> {
    loop {
        let pruned = shared.store.prune(shared.settings.keep_sent, PRUNE_MAX).await?;
        shared.metrics.pruned(pruned);
        if pruned < PRUNE_MAX as u64 {
            return Ok(());
        }
        tokio::time::sleep(BREATH).await;
    }
}
