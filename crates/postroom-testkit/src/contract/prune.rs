//! Pruning by an operator, on record.

use super::Harness;
use super::steps::{begin, dead, enqueue, failed, find, message, take_and_settle};
use postroom_core::{Fate, MessageId, Operation, Status};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

async fn settled(outbox: &impl Harness, fate: Fate, age: Duration) -> MessageId {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    let id = take_and_settle(&*store, "noop", fate).await.message.id;
    outbox.make_older(&id, age).await;
    id
}

/// Only what is SENT and old enough, step by step, and the record adds up.
pub async fn old_messages_are_pruned_on_record(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(settled(outbox, Fate::Sent, 3 * HOUR).await);
    }
    let young = settled(outbox, Fate::Sent, Duration::ZERO).await;
    let dead = settled(outbox, dead(), 3 * HOUR).await;
    assert_eq!(store.prunable(Status::Sent, HOUR).await.expect("count"), 3);
    let action = begin(&*store, Operation::Prune).await;
    for expected in [2, 1, 0] {
        let pruned = store.prune_on_record(action, Status::Sent, HOUR, 2).await.expect("prune");
        assert_eq!(pruned, expected);
    }
    assert_eq!(store.prunable(Status::Sent, HOUR).await.expect("count"), 0);
    for id in old {
        assert!(store.find(&id).await.expect("find").is_none());
    }
    find(&*store, &young).await;
    find(&*store, &dead).await;
    assert_eq!(store.actions(None, 1).await.expect("actions")[0].messages, 3);
}

/// Message, delivery and attempts go together; age counts from the death.
pub async fn dead_messages_are_pruned_with_all_they_have(outbox: &impl Harness) {
    let store = outbox.store().await;
    let old = settled(outbox, dead(), 3 * HOUR).await;
    let young = settled(outbox, dead(), Duration::ZERO).await;
    assert_eq!((outbox.deliveries().await, outbox.attempts().await), (2, 4));
    assert_eq!(store.prunable(Status::Dead, HOUR).await.expect("count"), 1);
    let action = begin(&*store, Operation::Prune).await;
    let prune = async || store.prune_on_record(action, Status::Dead, HOUR, 10).await;
    assert_eq!(prune().await.expect("prune"), 1);
    assert_eq!(prune().await.expect("prune"), 0);
    assert!(store.find(&old).await.expect("find").is_none());
    assert_eq!(find(&*store, &young).await.status, "DEAD");
    assert_eq!((outbox.deliveries().await, outbox.attempts().await), (1, 2));
}

/// What is still to be delivered is not an operator's to prune.
pub async fn open_messages_are_not_pruned(outbox: &impl Harness) {
    let store = outbox.store().await;
    let action = begin(&*store, Operation::Prune).await;
    for status in [Status::Pending, Status::Claimed, Status::Failed] {
        store.prune_on_record(action, status, HOUR, 10).await.expect_err("refused");
        store.prunable(status, HOUR).await.expect_err("refused");
    }
}
