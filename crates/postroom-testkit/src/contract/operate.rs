//! What operators do: redrive, cancel, release, and the record of it all.

use super::Harness;
use super::steps::{
    assert_between, assert_nothing_due, assert_same, beat, begin, dead, enqueue, enqueue_many,
    failed, find, fresh_relay, ids, in_ms, message, now, settle, settle_one, take, take_and_settle,
    take_by, take_one, verdict,
};
use postroom_core::{CANCELLED, Fate, Key, MessageId, Operation, Store};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3_600);

async fn keys(store: &dyn Store, ids: &[MessageId]) -> Vec<Key> {
    let mut keys = Vec::new();
    for id in ids {
        keys.push(find(store, id).await.key());
    }
    keys
}

/// Dead messages, and their keys.
async fn dead_messages(store: &dyn Store, n: usize) -> Vec<Key> {
    let all = enqueue_many(store, "noop", n).await;
    for _ in &all {
        take_and_settle(store, "noop", dead()).await;
    }
    keys(store, &all).await
}

/// How many messages an action has changed, by its record.
async fn on_record(store: &dyn Store, operation: Operation) -> Vec<u64> {
    let actions = store.actions(None, 100).await.expect("actions");
    let wanted = actions.iter().filter(|action| action.operation == operation.as_str());
    wanted.map(|action| action.messages).collect()
}

/// The second click finds nothing to do, and the record says so.
pub async fn fault_43_a_redrive_said_twice_requeues_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    let keys = dead_messages(&*store, 3).await;
    let first = begin(&*store, Operation::Redrive).await;
    let second = begin(&*store, Operation::Redrive).await;
    assert_eq!(store.redrive(first, &keys).await.expect("redrive"), 3);
    assert_eq!(store.redrive(second, &keys).await.expect("redrive"), 0);
    // Nor while it is held, nor after it was sent.
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(batch.messages.len(), 3);
    assert_eq!(store.redrive(second, &keys).await.expect("redrive"), 0);
    let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
    assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
    assert_eq!(store.redrive(second, &keys).await.expect("redrive"), 0);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(on_record(&*store, Operation::Redrive).await, [0, 3]);
}

/// Two operators at once: between them, every message is requeued once.
pub async fn fault_43_of_racing_redrives_each_message_is_requeued_by_one(outbox: &impl Harness) {
    let store = outbox.store().await;
    let keys = Arc::new(dead_messages(&*store, 40).await);
    let mut racing = Vec::new();
    for _ in 0..4 {
        let (store, keys) = (outbox.store().await, Arc::clone(&keys));
        racing.push(tokio::spawn(async move {
            let action = begin(&*store, Operation::Redrive).await;
            let mut changed = 0;
            for some in keys.chunks(10) {
                changed += store.redrive(action, some).await.expect("redrive");
            }
            changed
        }));
    }
    let mut changed = 0;
    for operator in racing {
        changed += operator.await.expect("an operator");
    }
    assert_eq!(changed, 40);
    assert_eq!(on_record(&*store, Operation::Redrive).await.iter().sum::<u64>(), 40);
    let batch = take(&*store, "worker", &["noop"], 100).await.expect("due");
    assert_eq!(batch.messages.len(), 40);
}

/// PENDING, due now, none of its attempts used; what went wrong stays to be read.
pub async fn a_redriven_message_has_all_its_attempts_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    let mut expected = take_and_settle(&*store, "noop", dead()).await;
    let action = begin(&*store, Operation::Redrive).await;
    let before = now(&*store).await;
    store.redrive(action, &[expected.key()]).await.expect("redrive");
    let redriven = find(&*store, &id).await;
    assert_between(before, redriven.message.due_at, now(&*store).await);
    assert_between(before, redriven.updated_at, now(&*store).await);
    expected.status = "PENDING".to_owned();
    expected.message.attempts = 0;
    expected.message.due_at = redriven.message.due_at;
    expected.updated_at = redriven.updated_at;
    assert_same(&redriven, &expected);
    assert_eq!(redriven.last_error.as_deref(), Some("400 from the receiver"));
    assert_eq!(store.attempts(&id).await.expect("attempts").len(), 2);

    let (token, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((&taken.message.id, taken.message.attempts, taken.rescues), (&id, 0, 0));
    settle_one(&*store, token, &taken, failed(HOUR)).await;
    assert_eq!(store.attempts(&id).await.expect("attempts").len(), 3);
    let lane = &store.backlog().await.expect("backlog").lanes[0];
    assert_eq!((lane.failed, lane.dead), (1, 0));
}

/// Every other status is left alone; DEAD by hand is dead too.
pub async fn only_dead_messages_are_redriven(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut all = Vec::new();
    for fate in [Fate::Sent, failed(HOUR)] {
        enqueue(&*store, &message("noop")).await;
        all.push(take_and_settle(&*store, "noop", fate).await.message.id);
    }
    all.push(enqueue(&*store, &message("noop")).await);
    take_one(&*store, "worker", "noop").await;
    all.push(enqueue(&*store, &message("noop").due_at(now(&*store).await + HOUR)).await);
    let mut before = Vec::new();
    for id in &all {
        before.push(find(&*store, id).await);
    }
    let action = begin(&*store, Operation::Redrive).await;
    let keys = keys(&*store, &all).await;
    assert_eq!(store.redrive(action, &keys).await.expect("redrive"), 0);
    for record in &before {
        assert_same(&find(&*store, &record.message.id).await, record);
    }
    outbox.set_status(&all[3], "DEAD").await.expect("by hand");
    assert_eq!(store.redrive(action, &keys).await.expect("redrive"), 1);
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, all[3]);
}

/// DEAD with a reason everybody knows; it can be redriven.
pub async fn waiting_messages_are_cancelled(outbox: &impl Harness) {
    let store = outbox.store().await;
    let pending = enqueue(&*store, &message("noop")).await;
    enqueue(&*store, &message("other")).await;
    let retried = take_and_settle(&*store, "other", failed(HOUR)).await.message.id;
    let keys = keys(&*store, &[pending.clone(), retried.clone()]).await;
    let action = begin(&*store, Operation::Cancel).await;
    assert_eq!(store.cancel(action, &keys).await.expect("cancel"), 2);
    assert_eq!(store.cancel(action, &keys).await.expect("cancel"), 0);
    for (id, attempts) in [(pending.clone(), 0), (retried, 1)] {
        let record = find(&*store, &id).await;
        assert_eq!(record.status, "DEAD");
        assert_eq!(record.last_error.as_deref(), Some(CANCELLED));
        assert_eq!(record.message.attempts, attempts);
    }
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(on_record(&*store, Operation::Cancel).await, [2]);
    assert_eq!(store.redrive(action, &keys).await.expect("redrive"), 2);
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, pending);
}

/// An attempt under way decides for itself.
pub async fn a_claimed_message_is_not_cancelled(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    let before = find(&*store, &id).await;
    let action = begin(&*store, Operation::Cancel).await;
    assert_eq!(store.cancel(action, &[before.key()]).await.expect("cancel"), 0);
    assert_same(&find(&*store, &id).await, &before);
    assert!(settle_one(&*store, token, &taken, Fate::Sent).await.late.is_empty());
    assert_eq!(store.cancel(action, &[before.key()]).await.expect("cancel"), 0);
    assert_eq!(find(&*store, &id).await.status, "SENT");
}

/// Due at once for others; the relay that held it comes too late.
pub async fn a_released_message_is_taken_from_its_relay(outbox: &impl Harness) {
    let store = outbox.store().await;
    for (fate, status) in [(None, "PENDING"), (Some(failed(Duration::ZERO)), "FAILED")] {
        let id = enqueue(&*store, &message("noop")).await;
        if let Some(fate) = fate {
            take_and_settle(&*store, "noop", fate).await;
        }
        let (token, taken) = take_one(&*store, "stuck", "noop").await;
        let before = now(&*store).await;
        let action = begin(&*store, Operation::Release).await;
        let key = Key { seq: taken.message.seq, id: id.clone() };
        assert_eq!(store.release(action, slice::from_ref(&key)).await.expect("release"), 1);
        assert_eq!(store.release(action, &[key]).await.expect("release"), 0);
        let released = find(&*store, &id).await;
        assert_eq!((released.status.as_str(), released.locked_by.as_deref()), (status, None));
        assert_between(before, released.message.due_at, now(&*store).await);

        let late = settle_one(&*store, token, &taken, Fate::Sent).await;
        assert_eq!(late.late, [taken.message.seq]);
        assert_same(&find(&*store, &id).await, &released);
        let (token, taken) = take_one(&*store, "other", "noop").await;
        assert_eq!(taken.message.id, id);
        assert!(settle_one(&*store, token, &taken, Fate::Sent).await.late.is_empty());
    }
    assert_eq!(on_record(&*store, Operation::Release).await, [1, 1]);
}

/// The rest of the batch stays with its relay, under its claim.
pub async fn a_release_leaves_the_rest_of_the_batch_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 3).await;
    let relay = fresh_relay(&*store, "worker").await;
    let batch = take_by(&*store, relay, "noop", 10, false).await;
    let action = begin(&*store, Operation::Release).await;
    let keys = keys(&*store, &all[1..2]).await;
    assert_eq!(store.release(action, &keys).await.expect("release"), 1);
    assert!(beat(&*store, relay, &[batch.token], HOUR).await.is_empty());
    let again = take(&*store, "other", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&again), [all[1].clone()]);
    let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
    let settled = settle(&*store, batch.token, verdicts, true).await;
    assert_eq!(settled.late, [keys[0].seq]);
    let claimed = find(&*store, &all[1]).await;
    assert_eq!(claimed.locked_by.as_deref(), Some("other"));
}

/// What someone wrote during the attempt counts, as after any attempt that came to nothing.
pub async fn a_release_follows_what_was_changed_by_hand(outbox: &impl Harness) {
    let store = outbox.store().await;
    let elsewhere = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "worker", "noop").await;
    outbox.set_integration(&elsewhere, "other").await;
    let closed = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "worker", "noop").await;
    outbox.set_status(&closed, "DEAD").await.expect("by hand");
    let action = begin(&*store, Operation::Release).await;
    let keys = keys(&*store, &[elsewhere.clone(), closed.clone()]).await;
    assert_eq!(store.release(action, &keys).await.expect("release"), 2);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(take_one(&*store, "worker", "other").await.1.message.id, elsewhere);
    assert_eq!(find(&*store, &closed).await.status, "DEAD");
    assert_eq!(store.redrive(action, &keys[1..]).await.expect("redrive"), 1);
}

/// Who, when, what, to what, and how many; in pages.
pub async fn actions_are_on_record_newest_first(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert!(store.actions(None, 10).await.expect("actions").is_empty());
    let before = now(&*store).await;
    let keys = dead_messages(&*store, 2).await;
    let redrive = begin(&*store, Operation::Redrive).await;
    store.redrive(redrive, &keys[..1]).await.expect("redrive");
    store.redrive(redrive, &keys[1..]).await.expect("redrive");
    let cancel = begin(&*store, Operation::Cancel).await;
    store.note_action(cancel, 7).await.expect("noted");

    let actions = store.actions(None, 10).await.expect("actions");
    assert_eq!(actions.iter().map(|one| one.id).collect::<Vec<_>>(), [cancel.0, redrive.0]);
    assert_eq!(actions.iter().map(|one| one.messages).collect::<Vec<_>>(), [7, 2]);
    let first = &actions[1];
    assert_eq!((first.actor.as_str(), first.operation.as_str()), ("ann@desk", "redrive"));
    assert_eq!(first.target, "a test");
    assert_between(in_ms(before), first.at, now(&*store).await);
    let rest = store.actions(Some(cancel), 10).await.expect("actions");
    assert_eq!(rest, actions[1..]);
    assert_eq!(store.actions(None, 1).await.expect("actions"), actions[..1]);
}

/// A key that names nothing, or what was deleted meanwhile, stops nobody.
pub async fn a_message_that_is_gone_is_left_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut keys = dead_messages(&*store, 2).await;
    outbox.delete(&keys[0].id).await;
    keys.push(Key { seq: 1 << 40, id: Uuid::now_v7().into() });
    let action = begin(&*store, Operation::Redrive).await;
    assert_eq!(store.redrive(action, &keys).await.expect("redrive"), 1);
    assert_eq!(store.cancel(action, &keys[..1]).await.expect("cancel"), 0);
    assert_eq!(store.release(action, &keys).await.expect("release"), 0);
    assert!(store.replay(action, &keys, false).await.expect("replay").is_empty());
    assert_eq!(store.redrive(action, &[]).await.expect("redrive"), 0);
}
