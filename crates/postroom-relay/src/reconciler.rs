//! Notices that the outbox was restored, and has messages and ledger agree again.

use crate::background::{about, upkeep_failed};
use crate::relay::Shared;
use postroom_core::{Reconciled, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// A restore, or a switchover to a replica whose sequences are behind, hides messages for so long at most.
const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        about(&shared, INTERVAL).await;
        if let Err(error) = reconcile(&shared, false).await {
            upkeep_failed("looking for a restore", &error);
        }
    }
}

/// Reconciles where the outbox looks restored, and at the `start` where the store asks for it.
pub(crate) async fn reconcile(shared: &Shared, start: bool) -> Result<(), StoreError> {
    let store = &shared.store;
    if (start && store.reconciles_at_start()) || store.looks_restored().await? {
        let mended = store.reconcile().await?;
        if mended.total() > 0 {
            let Reconciled { made, removed, freed, followed, advanced, numbered } = mended;
            tracing::warn!(
                made,
                removed,
                freed,
                followed,
                advanced,
                numbered,
                "messages and ledger disagreed; mended them"
            );
        }
    }
    Ok(())
}
