//! Calls that nobody waits for any more: one that missed its deadline is dropped wherever it is.

use super::Harness;
use super::steps::{
    enqueue, enqueue_many, find, fresh_relay, message, settle_one, take, take_by, take_one,
    take_rescued,
};
use crate::eventually;
use postroom_core::{Batch, Fate, Store};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
/// Before the first statement of a call, between two, and after the last.
const PATIENCE_MS: [u64; 8] = [0, 1, 2, 3, 4, 6, 9, 14];

/// What it had locked is free, what it took is rescued, and the store goes on.
pub async fn fault_50_a_take_that_is_given_up_half_way_locks_and_loses_nothing(
    outbox: &impl Harness,
) {
    const MESSAGES: usize = 100;
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", MESSAGES).await;
    let relay = fresh_relay(&*store, "given up").await;
    for patience in PATIENCE_MS.map(Duration::from_millis) {
        let taking = take_by(&*store, relay, "noop", 3, false);
        let _ = tokio::time::timeout(patience, taking).await;
    }
    let mut sent = 0;
    eventually("everything to be delivered", SOON, async || {
        outbox.expire_claims().await;
        store.rescue(100).await.expect("rescue");
        let mut batches = take_rescued(&*store, "next", &["noop"]).await;
        batches.extend(take(&*store, "next", &["noop"], MESSAGES).await);
        for batch in &batches {
            sent += settle_all(&*store, batch).await;
        }
        (sent == MESSAGES).then_some(())
    })
    .await;
}

async fn settle_all(store: &dyn Store, batch: &Batch) -> usize {
    for taken in &batch.messages {
        let settled = settle_one(store, batch.token, taken, Fate::Sent).await;
        assert!(settled.late.is_empty(), "under its own claim");
    }
    batch.messages.len()
}

/// Whether it was carried out is unknown then; said again it happens once, and is not late.
pub async fn fault_50_a_settlement_that_is_given_up_half_way_can_be_said_again(
    outbox: &impl Harness,
) {
    let store = outbox.store().await;
    for patience in PATIENCE_MS.map(Duration::from_millis) {
        let id = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        let settling = settle_one(&*store, token, &taken, Fate::Sent);
        let _ = tokio::time::timeout(patience, settling).await;
        let again = settle_one(&*store, token, &taken, Fate::Sent).await;
        assert!(again.late.is_empty(), "after {patience:?}");
        assert_eq!(find(&*store, &id).await.status, "SENT");
    }
}
