//! Watches the backlog: how much waits, how long, and for whom nobody works.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::Backlog;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);
/// Counting may take this share of the time at most,
const SHARE: u32 = 50;
/// unless that would leave those who watch without a count for longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut behind = false;
    let mut took_before = Duration::ZERO;
    loop {
        let started = Instant::now();
        let counted = shared.store.backlog().await;
        let took = started.elapsed();
        match counted {
            Ok(backlog) => {
                let pause = pause(took, std::mem::replace(&mut took_before, took));
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

/// How long to wait after a count that took so long, by the shorter one of the last two: a single one may have
/// waited for a connection, and says nothing about the next.
fn pause(took: Duration, took_before: Duration) -> Duration {
    (took.min(took_before) * SHARE).clamp(INTERVAL, PAUSE_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_count_does_not_put_off_the_next() {
        let (fast, slow) = (Duration::from_millis(2), Duration::from_millis(1_200));
        assert_eq!(pause(slow, fast), INTERVAL);
        assert_eq!(pause(fast, slow), INTERVAL);
        assert_eq!(pause(Duration::from_millis(100), slow), Duration::from_secs(5));
        assert_eq!(pause(slow, slow), PAUSE_MAX);
    }
}
