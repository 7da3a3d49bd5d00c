//! Events that are remembered after their messages are gone.

use super::Harness;
use super::steps::{
    assert_nothing_due, begin, enqueue, find, message, settle_one, take, take_and_settle, take_one,
};
use postroom_core::{Fate, Key, MessageId, Operation, Store};
use std::slice;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Delivers the event, and prunes its message at that age.
async fn pruned(outbox: &impl Harness, store: &dyn Store, event: &str, age: Duration) -> MessageId {
    let id = enqueue(store, &message("noop").event_id(event)).await;
    take_and_settle(store, "noop", Fate::Sent).await;
    outbox.make_older(&id, age).await;
    assert_eq!(store.prune(30 * MINUTE, 10).await.expect("prune"), 1);
    assert!(store.find(&id).await.expect("find").is_none());
    id
}

/// The same event is over at once, however it comes; every other is delivered.
pub async fn a_remembered_event_is_not_delivered_again(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(true).await;
    let first = pruned(outbox, &*store, "evt-1", 40 * MINUTE).await;
    let again = enqueue(&*store, &message("noop").event_id("evt-1")).await;
    assert_ne!(again, first);
    enqueue(&*store, &message("noop").event_id("evt-1").copy(1)).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    let batch = [message("noop").event_id("evt-2"), message("other").event_id("evt-1")];
    store.accept(&batch, None).await.expect("accepted");
    take_and_settle(&*store, "noop", Fate::Sent).await;
    take_and_settle(&*store, "other", Fate::Sent).await;
    assert_nothing_due(&*store, "noop").await;
    let record = find(&*store, &again).await;
    assert_eq!(record.status, "SENT");
    let why = record.last_error.expect("why it was not delivered");
    assert!(why.contains("delivered before"), "{why}");
    assert_eq!(outbox.deliveries().await, 0);
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
}

/// Among many in one statement too.
pub async fn a_remembered_event_among_others_is_left_out(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(true).await;
    pruned(outbox, &*store, "evt-1", 40 * MINUTE).await;
    let events: Vec<_> = (0..3).map(|n| message("noop").event_id(format!("evt-{n}"))).collect();
    store.accept(&events, None).await.expect("accepted");
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let taken: Vec<&str> =
        batch.messages.iter().map(|taken| taken.message.event_id.as_str()).collect();
    assert_eq!(taken, ["evt-0", "evt-2"]);
}

/// Its time counts from the delivery.
pub async fn an_event_is_forgotten_after_its_time(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(true).await;
    pruned(outbox, &*store, "evt-1", 90 * MINUTE).await;
    enqueue(&*store, &message("noop").event_id("evt-1")).await;
    take_one(&*store, "worker", "noop").await;
}

/// An outbox that keeps no history remembers its events.
pub async fn an_event_is_remembered_without_history(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(false).await;
    let new = message("noop").event_id("evt-1");
    let first = enqueue(&*store, &new).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    settle_one(&*store, token, &taken, Fate::Sent).await;
    assert!(store.find(&first).await.expect("find").is_none());
    let again = enqueue(&*store, &new).await;
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &again).await.status, "SENT");
}

/// Whoever replays a message means it, though an earlier replay of the same copy is pruned.
pub async fn a_replay_is_delivered_though_its_event_is_remembered(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(true).await;
    let id = enqueue(&*store, &message("noop").event_id("evt-1")).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    let record = find(&*store, &id).await;
    let key = Key { seq: record.message.seq, id };
    let action = begin(&*store, Operation::Replay).await;
    for _ in 0..2 {
        let made = &store.replay(action, slice::from_ref(&key), false).await.expect("replay")[0];
        take_and_settle(&*store, "noop", Fate::Sent).await;
        outbox.make_older(made, 40 * MINUTE).await;
        assert_eq!(store.prune(30 * MINUTE, 10).await.expect("prune"), 1);
    }
}

/// Whoever opens a message by hand means it, though its event is remembered.
pub async fn a_remembered_event_that_is_opened_by_hand_is_delivered(outbox: &impl Harness) {
    let store = outbox.store_that_remembers(true).await;
    pruned(outbox, &*store, "evt-1", 40 * MINUTE).await;
    let again = enqueue(&*store, &message("noop").event_id("evt-1")).await;
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &again).await.status, "SENT");
    outbox.set_status(&again, "PENDING").await.expect("opened again");
    take_and_settle(&*store, "noop", Fate::Sent).await;
    let record = find(&*store, &again).await;
    assert_eq!((record.status.as_str(), record.message.id), ("SENT", again));
}
