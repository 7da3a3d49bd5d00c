//! Watches the backlog: how much waits, how long, and for whom nobody works.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::Backlog;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);
/// Counting may take this share of the time at most.
const SHARE: u32 = 50;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut behind = false;
    loop {
        let started = Instant::now();
        let counted = shared.store.backlog().await;
        let took = started.elapsed();
        let pause = INTERVAL.max(took * SHARE);
        match counted {
            Ok(backlog) => {
                behind = note(&shared, &backlog, behind, pause + took);
                about(&shared, pause).await;
            }
            Err(error) => {
                upkeep_failed("counting the backlog", &error);
                about(&shared, INTERVAL).await;
            }
        }
    }
}

/// Shows the backlog, which is counted again within `next`, and says once when the lag passes its
/// threshold in either direction.
fn note(shared: &Shared, backlog: &Backlog, was_behind: bool, next: Duration) -> bool {
    let is_routed = |integration: &str| shared.is_routed(integration);
    shared.metrics.backlog(backlog, is_routed);
    let unrouted: BTreeMap<String, u64> = backlog
        .lanes
        .iter()
        .filter(|lane| !is_routed(&lane.integration) && lane.pending + lane.failed > 0)
        .map(|lane| (lane.integration.clone(), lane.pending + lane.failed))
        .collect();
    let lag_ms = backlog
        .lanes
        .iter()
        .filter(|lane| is_routed(&lane.integration))
        .map(|lane| lane.lag_ms)
        .max()
        .unwrap_or(0);
    shared.board.backlog(lag_ms, unrouted, next);
    let lag = Duration::from_millis(lag_ms);
    let behind = lag > shared.settings.lag_threshold;
    if behind && !was_behind {
        let threshold = shared.settings.lag_threshold;
        tracing::warn!(?lag, ?threshold, "deliveries lag behind");
    } else if was_behind && !behind {
        tracing::info!(?lag, "deliveries have caught up");
    }
    behind
}
