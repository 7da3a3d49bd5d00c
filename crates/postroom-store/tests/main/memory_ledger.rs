//! The ledger of the store in memory, with parcels of several messages: most lines of the contract
//! enqueue one message at a time.

use crate::taking::{settlement, wish};
use chrono::{DateTime, Utc};
use postroom_core::{
    Admin as _, Batch, Claims as _, Clock, Dispatches as _, Enqueued, Fate, Filter, Intake as _,
    Key, MessageId, NewAction, NewMessage, Operate as _, Operation, Quota, Rescued, StoreErrorKind,
    SystemClock, Take, Upkeep as _,
};
use postroom_store::memory::{Ledger, MemoryStore};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

fn outbox() -> MemoryStore {
    MemoryStore::new(Arc::new(SystemClock))
}

fn message(lane: &str) -> NewMessage {
    NewMessage::new(lane, "order.created.v1").json(&1)
}

/// Inserts so many messages at once; their ids.
async fn insert(store: &MemoryStore, lane: &str, messages: usize) -> Vec<MessageId> {
    let batch: Vec<_> = (0..messages).map(|_| message(lane)).collect();
    let answers = store.accept(&batch, None).await.expect("accepted");
    answers.into_iter().map(Enqueued::into_id).collect()
}

async fn take(store: &MemoryStore, lane: &str, rows: usize) -> Vec<Batch> {
    let quotas = [Quota { integration: lane.to_owned(), rows }];
    store.take(&wish(store, &quotas).await).await.expect("take")
}

async fn take_one_batch(store: &MemoryStore, lane: &str) -> Batch {
    let mut batches = take(store, lane, 1_000).await;
    assert_eq!(batches.len(), 1, "{batches:?}");
    batches.remove(0)
}

fn ids(batches: &[Batch]) -> Vec<MessageId> {
    let messages = batches.iter().flat_map(|batch| &batch.messages);
    messages.map(|taken| taken.message.id.clone()).collect()
}

/// How many messages each parcel has.
fn sizes(ledger: &Ledger) -> Vec<usize> {
    ledger.parcels.iter().map(|parcel| parcel.ids.len()).collect()
}

fn failed() -> Fate {
    Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO }
}

async fn settle(store: &MemoryStore, batch: &Batch, fate: &Fate) -> Vec<i64> {
    store.settle(&[settlement(batch, fate)]).await.expect("settle").late
}

async fn status(store: &MemoryStore, id: &MessageId) -> String {
    store.find(id).await.expect("find").expect("a message").status
}

fn assert_empty(store: &MemoryStore) {
    let Ledger { parcels, deliveries, claims, uncommitted, pending_edits, .. } = store.ledger();
    let left = (parcels, deliveries, claims, uncommitted, pending_edits);
    assert_eq!(left, Default::default(), "something is left");
}

#[tokio::test]
async fn an_insert_makes_parcels_of_up_to_64_messages_of_a_lane() {
    let store = outbox();
    let mut batch: Vec<_> = (0..130).map(|_| message("a")).collect();
    batch.insert(1, message("b"));
    batch.push(message("a").due_at(Utc::now() + Duration::from_secs(60)));
    store.accept(&batch, None).await.expect("accepted");
    let ledger = store.ledger();
    assert_eq!(sizes(&ledger), [64, 64, 2, 1]);
    assert_eq!(ledger.deliveries.len(), 1, "what is due later has a delivery");
    store.enqueue(&message("a")).await.expect("enqueued");
    assert_eq!(sizes(&store.ledger()), [64, 64, 2, 1, 1]);
}

#[tokio::test]
async fn a_claim_names_parcels_and_writes_none() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let before = store.ledger();
    let batch = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&batch)), all);
    let held = store.ledger();
    assert_eq!((held.parcels.clone(), held.messages), (before.parcels, before.messages));
    assert_eq!(held.claims[0].parcels, [held.parcels[0].key.clone()]);
    assert!(settle(&store, &batch, &Fate::Sent).await.is_empty());
    assert_empty(&store);
}

/// The parcel goes with the last of its messages; until then it names what is over, too.
#[tokio::test]
async fn a_parcel_that_is_settled_in_parts_goes_with_its_claim() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let batch = take_one_batch(&store, "noop").await;
    for (place, fate) in [Fate::Sent, failed(), Fate::Released].into_iter().enumerate() {
        assert_eq!(sizes(&store.ledger()), [3], "a parcel is never shortened");
        let mut part = settlement(&batch, &fate);
        part.verdicts = vec![part.verdicts.remove(place)];
        part.finished = place == 2;
        for _ in 0..2 {
            // Said again, it changes nothing.
            store.settle(std::slice::from_ref(&part)).await.expect("settle");
        }
    }
    assert_eq!((store.ledger().parcels.len(), store.ledger().claims.len()), (0, 0));
    let mut statuses = Vec::new();
    for id in &all {
        statuses.push(status(&store, id).await);
    }
    assert_eq!(statuses, ["SENT", "FAILED", "PENDING"]);
    let again = take_one_batch(&store, "noop").await;
    assert_eq!(again.messages.len(), 2);
    assert!(settle(&store, &again, &Fate::Sent).await.is_empty());
    assert_empty(&store);
}

/// Quotas and limits are exact, however large the parcels are.
#[tokio::test]
async fn a_parcel_that_does_not_fit_is_unpacked() {
    let store = outbox();
    let all = insert(&store, "noop", 64).await;
    let mut taken = Vec::new();
    for rows in [10, 1, 50, 1_000] {
        let batches = take(&store, "noop", rows).await;
        let here = ids(&batches);
        assert!(here.len() == rows || rows == 1_000, "{} of {rows}", here.len());
        taken.extend(here);
    }
    assert_eq!(taken, all, "in order");
    assert!(store.ledger().parcels.is_empty(), "nothing is fresh any more");
}

#[tokio::test]
async fn a_parcel_with_more_bytes_than_may_be_taken_is_unpacked() {
    let store = outbox();
    let large: Vec<_> = (0..5).map(|_| message("noop").json(&"x".repeat(1_000))).collect();
    store.accept(&large, None).await.expect("accepted");
    let quotas = [Quota { integration: "noop".to_owned(), rows: 100 }];
    for expected in [2, 2, 1] {
        let take = Take { bytes: 2_100, ..wish(&store, &quotas).await };
        let batches = store.take(&take).await.expect("take");
        assert_eq!(ids(&batches).len(), expected);
    }
}

/// A payload over the relay's limit is not read, and weighs nothing.
#[tokio::test]
async fn what_is_not_read_does_not_count_for_the_limit_in_bytes() {
    let store = outbox();
    let batch = [message("noop").json(&"x".repeat(1_000)), message("noop"), message("noop")];
    store.accept(&batch, None).await.expect("accepted");
    let quotas = [Quota { integration: "noop".to_owned(), rows: 100 }];
    let take = Take { bytes: 500, payload_limit: 100, ..wish(&store, &quotas).await };
    let batches = store.take(&take).await.expect("take");
    assert_eq!((ids(&batches).len(), sizes(&store.ledger())), (3, vec![3]));
}

/// Deliveries have half of the room first, parcels what is left, deliveries the rest.
#[tokio::test]
async fn deliveries_and_parcels_do_not_keep_each_other_waiting() {
    let store = outbox();
    insert(&store, "noop", 20).await;
    let batch = take_one_batch(&store, "noop").await;
    settle(&store, &batch, &failed()).await;
    for _ in 0..20 {
        insert(&store, "noop", 1).await;
    }
    let of = |batches: &[Batch], attempts: u32| {
        let messages = batches.iter().flat_map(|batch| &batch.messages);
        messages.filter(|taken| taken.message.attempts == attempts).count()
    };
    let both = take(&store, "noop", 10).await;
    assert_eq!((both.len(), of(&both, 0), of(&both, 1)), (2, 5, 5));
    let rest = take(&store, "noop", 100).await;
    assert_eq!((of(&rest, 0), of(&rest, 1)), (15, 15));
}

/// Its number is below the lane's mark when it becomes visible.
#[tokio::test]
async fn what_commits_late_is_swept_up() {
    let store = outbox();
    let open = store.insert_uncommitted(&[message("noop"), message("noop")]).expect("inserted");
    let younger = insert(&store, "noop", 2).await;
    let first = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&first)), younger);
    assert!(take(&store, "noop", 10).await.is_empty());
    let late: Vec<MessageId> = open.commit().into_iter().map(Enqueued::into_id).collect();
    let second = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&second)), late);
    assert!(take(&store, "noop", 10).await.is_empty(), "what claims name is not swept");
    for batch in [&first, &second] {
        assert!(settle(&store, batch, &Fate::Sent).await.is_empty());
    }
    assert_empty(&store);
}

/// A clock that a test moves.
struct HandClock(Mutex<DateTime<Utc>>);

impl Clock for HandClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().expect("a time")
    }
}

/// Every take is full: without a sweep now and then, it would wait until the load is over.
#[tokio::test]
async fn what_commits_late_does_not_wait_for_the_load_to_end() {
    let clock = Arc::new(HandClock(Mutex::new(Utc::now())));
    let store = MemoryStore::new(clock.clone());
    let open = store.insert_uncommitted(&[message("noop")]).expect("inserted");
    for _ in 0..100 {
        insert(&store, "noop", 1).await;
    }
    take(&store, "noop", 10).await;
    let late = open.commit()[0].id().clone();
    assert!(!ids(&take(&store, "noop", 10).await).contains(&late));
    *clock.0.lock().expect("a time") += Duration::from_secs(1);
    assert!(ids(&take(&store, "noop", 10).await).contains(&late));
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let store = outbox();
    let new = message("noop");
    let open = store.insert_uncommitted(std::slice::from_ref(&new)).expect("inserted");
    let conflict = store.enqueue(&new).await.expect_err("a database would wait");
    assert_eq!(conflict.kind, StoreErrorKind::Conflict);
    let all = Filter { limit: 10, ..Filter::default() };
    assert!(store.list(&all).await.expect("list").is_empty());
    drop(open);
    assert_empty(&store);
    let record = store.enqueue(&new).await.expect("enqueued");
    assert!(record.is_new());
    let seq = store.find(record.id()).await.expect("find").expect("there").message.seq;
    assert_eq!(seq, 2, "the number that was drawn is not used again");
}

/// Fresh is what is due within a second; until it is due it has a delivery.
#[tokio::test]
async fn a_message_due_in_a_moment_is_fresh_and_delivered_once_it_is_due() {
    let clock = Arc::new(HandClock(Mutex::new(Utc::now())));
    let store = MemoryStore::new(clock.clone());
    let soon = message("noop").due_at(clock.now() + Duration::from_millis(900));
    store.accept(&[soon, message("noop")], None).await.expect("accepted");
    assert_eq!(sizes(&store.ledger()), [2]);
    let first = take_one_batch(&store, "noop").await;
    assert_eq!(first.messages.len(), 1);
    assert_eq!(store.ledger().deliveries.len(), 1);
    assert!(settle(&store, &first, &Fate::Sent).await.is_empty());
    assert!(take(&store, "noop", 10).await.is_empty());
    *clock.0.lock().expect("a time") += Duration::from_secs(1);
    let second = take_one_batch(&store, "noop").await;
    assert!(settle(&store, &second, &Fate::Sent).await.is_empty());
    assert_empty(&store);
}

/// Of a batch that is lost in part only the rest is rescued, and every message that was lost has a
/// delivery of its own.
#[tokio::test]
async fn a_lost_parcel_becomes_deliveries() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let batch = take_one_batch(&store, "noop").await;
    let mut part = settlement(&batch, &Fate::Sent);
    part.verdicts.truncate(1);
    part.finished = false;
    store.settle(&[part]).await.expect("settle");
    store.by_hand().expire_claims();
    assert_eq!(store.rescue(10).await.expect("rescue"), 2);
    let ledger = store.ledger();
    assert_eq!((ledger.parcels.len(), ledger.deliveries.len(), ledger.claims.len()), (0, 2, 0));
    assert_eq!(settle(&store, &batch, &Fate::Sent).await.len(), 2, "the word comes too late");
    let quotas = [Quota { integration: "noop".to_owned(), rows: 10 }];
    let wish = wish(&store, &quotas).await;
    let lost = store.take_rescued(&wish, Rescued::Together).await.expect("take");
    assert_eq!(ids(&lost), all[1..]);
    assert!(lost[0].messages.iter().all(|taken| taken.rescues == 1));
}

#[tokio::test]
async fn a_take_for_a_queue_unpacks_first() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let quotas = [Quota { integration: "noop".to_owned(), rows: 2 }];
    let take = Take { for_queue: true, ..wish(&store, &quotas).await };
    let batches = store.take(&take).await.expect("take");
    assert_eq!(ids(&batches), all[..2]);
    let ledger = store.ledger();
    assert_eq!((ledger.parcels.len(), ledger.deliveries.len()), (0, 3));
    assert_eq!(store.dispatched(&all).await.expect("dispatched").len(), 3);
}

/// The others of the parcel are unpacked with it, and delivered as ever.
#[tokio::test]
async fn changes_by_hand_in_a_parcel_are_followed_by_whoever_takes_there() {
    let store = outbox();
    let all = insert(&store, "noop", 5).await;
    let by_hand = store.by_hand();
    by_hand.set_status(&all[0], "SENT").expect("closed");
    by_hand.set_status(&all[1], "DEAD").expect("closed");
    by_hand.set_integration(&all[2], "other");
    by_hand.set_due_at(&all[3], Utc::now() + Duration::from_secs(60));
    assert_eq!((sizes(&store.ledger()), by_hand.counts().pending_edits), (vec![5], 4));
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let elsewhere = take_one_batch(&store, "other").await;
    assert_eq!(ids(std::slice::from_ref(&elsewhere)), [all[2].clone()]);
    let here = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&here)), [all[4].clone()]);
    assert_eq!(by_hand.counts().pending_edits, 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    for batch in [elsewhere, here] {
        assert!(settle(&store, &batch, &Fate::Sent).await.is_empty());
    }
    assert_eq!(store.ledger().deliveries.len(), 2, "a dead one, and one that is due later");
}

/// No trigger has seen it: what is read decides.
#[tokio::test]
async fn what_a_parcel_names_by_mistake_is_not_handed_out() {
    let store = outbox();
    let all = insert(&store, "noop", 6).await;
    let by_hand = store.by_hand();
    let later = (Utc::now() + Duration::from_secs(60)).to_rfc3339();
    by_hand.set_unseen(&all[0], "status", "SENT").expect("closed");
    by_hand.set_unseen(&all[1], "status", "DEAD").expect("closed");
    by_hand.set_unseen(&all[2], "integration_type", "other").expect("changed");
    by_hand.set_unseen(&all[3], "due_at", &later).expect("changed");
    by_hand.delete(&all[4]);
    let batch = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&batch)), [all[5].clone()]);
    assert_eq!(store.ledger().deliveries.len(), 3, "dead, elsewhere, later");
    assert!(settle(&store, &batch, &Fate::Sent).await.is_empty());
    assert_eq!(ids(&take(&store, "other", 10).await), [all[2].clone()]);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

/// The rest of its batch is still under way: nobody has the message, and its parcel is held.
#[tokio::test]
async fn opened_again_while_its_batch_is_under_way_it_is_delivered_again() {
    let store = outbox();
    insert(&store, "noop", 2).await;
    let batch = take_one_batch(&store, "noop").await;
    let whole = settlement(&batch, &Fate::Sent);
    let (mut first, mut second) = (whole.clone(), whole);
    first.verdicts.truncate(1);
    first.finished = false;
    second.verdicts.remove(0);
    store.settle(&[first.clone()]).await.expect("settle");
    store.by_hand().set_status(&first.verdicts[0].id, "PENDING").expect("opened");
    let again = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&again)), [first.verdicts[0].id.clone()]);
    store.settle(&[second, settlement(&again, &Fate::Sent)]).await.expect("settle");
    assert_empty(&store);
}

/// The first relay's attempt fails after an operator took the message from it and another relay sent it.
#[tokio::test]
async fn a_late_failure_does_not_open_what_somebody_else_has_sent() {
    let store = outbox();
    insert(&store, "noop", 2).await;
    let batch = take_one_batch(&store, "noop").await;
    let message = &batch.messages[0].message;
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let key = Key { seq: message.seq, id: message.id.clone() };
    assert_eq!(store.release(action, &[key]).await.expect("release"), 1);
    let other = take_one_batch(&store, "noop").await;
    assert!(settle(&store, &other, &Fate::Sent).await.is_empty());
    for fate in [failed(), Fate::Released, Fate::Sent] {
        assert!(settle(&store, &batch, &fate).await.contains(&message.seq), "{fate:?}");
    }
    assert_eq!(status(&store, &message.id).await, "SENT");
}

#[tokio::test]
async fn sent_elsewhere_during_an_attempt_that_fails_it_goes_on_there() {
    let store = outbox();
    let id = &insert(&store, "noop", 1).await[0];
    // Out of a parcel, then out of a delivery.
    for (from, to) in [("noop", "other"), ("other", "noop")] {
        let batch = take_one_batch(&store, from).await;
        store.by_hand().set_integration(id, to);
        assert!(settle(&store, &batch, &failed()).await.is_empty());
        assert!(take(&store, from, 10).await.is_empty(), "{from}");
        assert_eq!(store.diagnose().await.expect("diagnose"), [], "{from}");
    }
    let again = take_one_batch(&store, "noop").await;
    assert!(settle(&store, &again, &Fate::Sent).await.is_empty());
    assert_empty(&store);
}

#[tokio::test]
async fn operators_reach_what_is_in_parcels() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let record = store.find(&all[1]).await.expect("find").expect("there");
    let action = NewAction { actor: "ann", operation: Operation::Cancel, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    assert_eq!(store.cancel(action, &[record.key()]).await.expect("cancel"), 1);
    let lane = store.backlog().await.expect("backlog").lanes.remove(0);
    assert_eq!((lane.pending, lane.dead), (2, 1));
    assert_eq!(store.integrations().await.expect("integrations"), ["noop"]);
    let batch = take_one_batch(&store, "noop").await;
    assert_eq!(ids(std::slice::from_ref(&batch)), [all[0].clone(), all[2].clone()]);
    assert_eq!(store.cancel(action, &[record.key()]).await.expect("cancel"), 0);
    assert_eq!(store.redrive(action, &[record.key()]).await.expect("redrive"), 1);
}

/// What a restore leaves: messages in two parcels, in a parcel beside their delivery, in neither, and
/// parcels that name nothing.
#[tokio::test]
async fn reconciling_leaves_every_open_message_in_one_place() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    let failing = insert(&store, "other", 1).await;
    let batch = take_one_batch(&store, "other").await;
    settle(&store, &batch, &failed()).await;
    let by_hand = store.by_hand();
    by_hand.insert_parcel("noop", &all[..2]);
    by_hand.insert_parcel("other", &failing);
    by_hand.insert_parcel("noop", &[Uuid::now_v7().into()]);
    assert_eq!(store.diagnose().await.expect("diagnose").len(), 2);
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.numbered, mended.removed, mended.total()), (3, 1, 4));
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    assert_eq!(ids(&take(&store, "noop", 10).await), all);
    assert_eq!(ids(&take(&store, "other", 10).await), failing);

    by_hand.delete_deliveries();
    by_hand.delete_claims();
    assert_eq!(store.reconcile().await.expect("reconcile").made, 4);
    assert_eq!(ids(&take(&store, "noop", 10).await), all);
}

/// A parcel whose claim is gone lies below its lane's mark.
#[tokio::test]
async fn parcels_of_a_claim_that_is_gone_are_swept_up() {
    let store = outbox();
    let all = insert(&store, "noop", 3).await;
    take_one_batch(&store, "noop").await;
    store.by_hand().delete_claims();
    assert_eq!(ids(&take(&store, "noop", 10).await), all);
}
