//! Taking and settling, for tests that are about something else.

use postroom_core::{Batch, Fate, Fence, Quota, Settlement, Store, Take, Verdict};
use postroom_testkit::living_relay;
use std::time::Duration;

/// All of a lane.
pub(crate) fn all(lane: &str) -> [Quota; 1] {
    [Quota { integration: lane.to_owned(), rows: 1_000 }]
}

/// A wish for these quotas that nothing else bounds, and whose claim outlasts every test.
pub(crate) async fn wish<'a>(store: &dyn Store, quotas: &'a [Quota]) -> Take<'a> {
    Take {
        worker: "worker",
        relay: living_relay(store, Duration::from_secs(3_600)).await,
        quotas,
        rows: 1_000,
        bytes: 64 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}

/// The same fate for a whole batch.
pub(crate) fn settlement(batch: &Batch, fate: &Fate) -> Settlement {
    let verdicts = batch.messages.iter().map(|taken| Verdict {
        seq: taken.message.seq,
        id: taken.message.id.clone(),
        fate: fate.clone(),
    });
    let fence = Fence::Claim(batch.token);
    Settlement { fence, verdicts: verdicts.collect(), finished: true }
}
