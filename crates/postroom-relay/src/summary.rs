//! Once a minute, what the relay did: one line that tells whether it works, and nothing of content.

use crate::metrics::Sums;
use crate::relay::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    // From the beginning: other stages are at work already.
    let mut before = (0, Sums::default());
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = counted(&shared);
        let (taken, sums) = (now.0 - before.0, now.1);
        tracing::info!(
            taken,
            sent = sums.sent - before.1.sent,
            failed = sums.failed - before.1.failed,
            dead = sums.dead - before.1.dead,
            in_flight = shared.in_flight(),
            lag = ?Duration::from_millis(shared.board.lag_ms()),
            "in the last minute"
        );
        before = now;
    }
}

/// Messages taken, directly or for a queue, and what became of messages.
fn counted(shared: &Shared) -> (u64, Sums) {
    let sums = shared.metrics.sums();
    (shared.tally.taken.load(Ordering::Relaxed) + sums.queued, sums)
}
