//! Keeps the claims of messages in hand.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use std::sync::Arc;
use std::time::Duration;

/// How soon an extension that failed is tried again, by part of the claim time: the claims are
/// running out.
const AGAIN: u32 = 20;
const AGAIN_MIN: Duration = Duration::from_millis(200);

/// How long a completer may take to see the answer to a settlement that the database has carried
/// out.
const SETTLING: Duration = Duration::from_millis(100);

/// Extends every claim three times within its time.
pub(crate) async fn run(shared: Arc<Shared>) {
    let claim_time = shared.settings.claim_time;
    let mut pause = claim_time / 3;
    loop {
        about(&shared, pause).await;
        pause = claim_time / 3;
        let tokens = shared.held.tokens();
        if tokens.is_empty() {
            continue;
        }
        match shared.store.extend(&tokens, claim_time).await {
            Ok(gone) => {
                // A claim that was settled while the call ran is gone too, but not lost.
                let still_held = shared.held.tokens();
                let lost: Vec<_> =
                    gone.into_iter().filter(|token| still_held.contains(token)).collect();
                let mut lost = shared.held.lose(&lost);
                if !lost.is_empty() {
                    // One whose last outcomes have just been recorded is gone as well, and its
                    // completer is about to know.
                    tokio::time::sleep(SETTLING).await;
                    lost.retain(|claim| !claim.is_settled());
                }
                if !lost.is_empty() {
                    tracing::warn!(
                        claims = lost.len(),
                        "claims expired; what has not begun is left to others"
                    );
                    shared.metrics.claims_lost(lost.len() as u64);
                }
            }
            Err(error) => {
                upkeep_failed("extending claims", &error);
                pause = (claim_time / AGAIN).max(AGAIN_MIN);
            }
        }
    }
}
