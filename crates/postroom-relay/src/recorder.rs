//! Writes SENT into messages whose integration has that recorded in the background.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::StoreError;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// How long a note is left alone: a burst is over by then, and what was noted stays little enough to
/// be looked through by whoever asks for one message.
const NOTED_BEFORE: Duration = Duration::from_secs(10);
/// How many settlements at once. Each is a batch at the most.
const RECORD_MAX: usize = 8;
/// The same, where the first of them could not be recorded: somebody has locked their messages.
const BEHIND_LOCKED: usize = 256;
/// Room for others between two batches.
const BREATH: Duration = Duration::from_millis(5);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        about(&shared, INTERVAL).await;
        if let Err(error) = record(&shared, NOTED_BEFORE).await {
            upkeep_failed("recording what was delivered", &error);
        }
    }
}

/// Records all that was noted at least so long ago.
pub(crate) async fn record(shared: &Shared, noted_before: Duration) -> Result<(), StoreError> {
    for most in [RECORD_MAX, BEHIND_LOCKED] {
        while shared.store.record_sent(noted_before, most).await? > 0 {
            tokio::time::sleep(BREATH).await;
        }
    }
    Ok(())
}
