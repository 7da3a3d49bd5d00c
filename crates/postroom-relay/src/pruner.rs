//! Deletes SENT messages after their retention, a little at a time.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(60);
const PRUNE_MAX: usize = 1_000;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        about(INTERVAL).await;
        loop {
            match shared.store.prune(shared.settings.keep_sent, PRUNE_MAX).await {
                Ok(pruned) => {
                    shared.metrics.pruned(pruned);
                    if pruned < PRUNE_MAX as u64 {
                        break;
                    }
                }
                Err(error) => {
                    upkeep_failed("pruning", &error);
                    break;
                }
            }
            // Room for others between two batches.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
