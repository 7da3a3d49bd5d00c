//! Taking and settling, for tests that are about something else.

use postroom_core::{Batch, Fate, Fence, Quota, Settlement, Take, Verdict};
use std::time::Duration;

/// All of a lane.
pub(crate) fn all(lane: &str) -> [Quota; 1] {
    [Quota { integration: lane.to_owned(), rows: 1_000 }]
}

/// A wish for these quotas that nothing else bounds, and whose claim outlasts every test.
pub(crate) fn wish(quotas: &[Quota]) -> Take<'_> {
    Take {
        worker: "worker",
        quotas,
        rows: 1_000,
        bytes: 64 << 20,
        payload_limit: 1 << 20,
        claim_time: Duration::from_secs(3_600),
        lease: None,
    }
}

/// The same fate for a whole batch.
pub(crate) fn settlement(batch: &Batch, fate: &Fate) -> Settlement {
    let verdicts = batch.messages.iter().map(|taken| Verdict {
        seq: taken.message.seq,
        id: taken.message.id,
        fate: fate.clone(),
    });
    let fence = Fence::Claim(batch.token);
    Settlement { fence, verdicts: verdicts.collect(), finished: true }
}
