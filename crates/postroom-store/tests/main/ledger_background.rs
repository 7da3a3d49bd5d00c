//! SENT recorded in the background, on PostgreSQL.

use crate::ledger_outbox::{LEFT, count, enqueue, outbox_with, take};
use crate::taking::settlement;
use postroom_core::{Batch, Fate, Filter, Key, NewAction, Operation, Status, Store};
use postroom_store::OpenOptions;
use postroom_testkit::TestDatabase;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// Everything that the contract asks of a store.
mod contract {
    use crate::postgres::start_recording_later as start;
    postroom_testkit::contract_tests!(start);
}

const SAY_SENT: &str = "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
const NOTED: &str = "SELECT coalesce(sum(cardinality(ids)), 0)::bigint FROM core_outbox.sent";

async fn outbox() -> (TestDatabase, Client, Arc<dyn Store>) {
    let options = OpenOptions { record_later: vec!["noop".to_owned()], ..OpenOptions::default() };
    outbox_with(&options).await
}

async fn record(store: &dyn Store) -> u64 {
    store.record_sent(Duration::ZERO, 100).await.expect("recorded")
}

async fn status(store: &dyn Store, batch: &Batch, place: usize) -> String {
    let id = &batch.messages[place].message.id;
    store.find(id).await.expect("find").expect("there").status
}

/// Messages that are noted as sent, and do not say so.
async fn noted(client: &Client, store: &dyn Store, messages: i32) -> Batch {
    enqueue(client, messages, "PENDING").await;
    let batch = take(store, "noop").await.pop().expect("due");
    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    assert_eq!(count(client, SAY_SENT).await, 0);
    assert_eq!(count(client, NOTED).await, i64::from(messages));
    batch
}

#[tokio::test]
async fn every_reader_sees_sent_before_the_messages_say_it() {
    let (_database, client, store) = outbox().await;
    let batch = noted(&client, &*store, 3).await;
    assert_eq!(count(&client, LEFT).await, 0);
    let record = store.find(&batch.messages[0].message.id).await.expect("find").expect("there");
    assert_eq!(record.status, "SENT");
    assert!(record.sent_at.is_some());
    let counts = store.status_counts().await.expect("counts").counts;
    assert_eq!(counts, [("SENT".to_owned(), 3)]);
    let list = async |status| {
        let filter = Filter { status: Some(status), limit: 10, ..Filter::default() };
        store.list(&filter).await.expect("a list").len()
    };
    assert_eq!((list(Status::Sent).await, list(Status::Pending).await), (3, 0));
    assert!(store.backlog().await.expect("backlog").lanes.is_empty());
    assert!(store.diagnose().await.expect("diagnose").is_empty());
}

#[tokio::test]
async fn messages_say_it_after_a_while_with_the_time_of_their_delivery() {
    let (_database, client, store) = outbox().await;
    let batch = noted(&client, &*store, 3).await;
    let id = &batch.messages[0].message.id;
    let seen = store.find(id).await.expect("find").expect("there").sent_at;
    assert_eq!(store.record_sent(Duration::from_secs(60), 100).await.expect("recorded"), 0);
    assert_eq!(record(&*store).await, 3);
    assert_eq!((count(&client, SAY_SENT).await, count(&client, NOTED).await), (3, 0));
    assert_eq!(store.find(id).await.expect("find").expect("there").sent_at, seen);
    assert_eq!(count(&client, LEFT).await, 0);
}

#[tokio::test]
async fn what_is_noted_is_found_by_nobody_who_looks_for_something_to_do() {
    let (_database, client, store) = outbox().await;
    noted(&client, &*store, 3).await;
    assert!(take(&*store, "noop").await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert!(store.diagnose().await.expect("diagnose").is_empty());
    // It writes down what is noted before it looks for what is open.
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    assert_eq!((count(&client, SAY_SENT).await, count(&client, NOTED).await), (3, 0));
}

/// The relay dies after it has recorded half of its batch.
#[tokio::test]
async fn half_a_batch_that_was_noted_is_not_rescued() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 2, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let mut half = settlement(&batch, &Fate::Sent);
    half.verdicts.truncate(1);
    half.finished = false;
    assert!(store.settle(&[half.clone()]).await.expect("settle").late.is_empty());
    // Its answer was lost: said again, it counts.
    assert!(store.settle(&[half]).await.expect("settle").late.is_empty());
    assert_eq!(status(&*store, &batch, 0).await, "SENT");
    assert_eq!(status(&*store, &batch, 1).await, "CLAIMED");
    client.execute("DELETE FROM core_outbox.relay", &[]).await.expect("gone");
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let delivery = "SELECT message_id FROM core_outbox.delivery";
    let rescued: uuid::Uuid = client.query_one(delivery, &[]).await.expect("one").get(0);
    assert_eq!(rescued, batch.messages[1].message.id);
    assert_eq!(record(&*store).await, 1);
}

#[tokio::test]
async fn in_parts_the_last_ends_the_claim() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 2, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let whole = settlement(&batch, &Fate::Sent);
    let (mut first, mut second) = (whole.clone(), whole);
    first.verdicts.truncate(1);
    first.finished = false;
    second.verdicts.remove(0);
    store.settle(&[first]).await.expect("settle");
    store.settle(&[second]).await.expect("settle");
    assert_eq!(count(&client, LEFT).await, 0);
    assert_eq!(record(&*store).await, 2);
}

/// Whoever changes a message that does not say SENT yet, cannot know that it is: it is not delivered again.
#[tokio::test]
async fn a_change_by_hand_of_what_is_noted_delivers_nothing_again() {
    let (_database, client, store) = outbox().await;
    noted(&client, &*store, 2).await;
    let change =
        "UPDATE core_outbox.integration_outbox SET due_at = now(), integration_type = 'other'";
    client.execute(change, &[]).await.expect("changed");
    for lane in ["noop", "other"] {
        assert!(take(&*store, lane).await.is_empty());
    }
    assert_eq!(record(&*store).await, 2);
    for lane in ["noop", "other"] {
        assert!(take(&*store, lane).await.is_empty());
    }
    assert_eq!(count(&client, LEFT).await, 0);
}

/// Somebody went to lunch with a message.
#[tokio::test]
async fn a_locked_message_is_recorded_later_and_keeps_nobody_waiting() {
    let (database, client, store) = outbox().await;
    let batch = noted(&client, &*store, 3).await;
    let id = &batch.messages[0].message.id;
    let lock = format!("SELECT FROM core_outbox.integration_outbox WHERE id = '{id}' FOR UPDATE");
    let unlock = database.open_transaction(&lock).await;
    assert_eq!(record(&*store).await, 2);
    assert_eq!(status(&*store, &batch, 0).await, "SENT");
    assert_eq!(count(&client, NOTED).await, 1);
    unlock.await;
    assert_eq!(record(&*store).await, 1);
}

#[tokio::test]
async fn what_is_noted_can_be_replayed() {
    let (_database, client, store) = outbox().await;
    let batch = noted(&client, &*store, 2).await;
    let action = NewAction { actor: "ann", operation: Operation::Replay, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let message = &batch.messages[0].message;
    let key = Key { seq: message.seq, id: message.id.clone() };
    assert_eq!(store.replay(action, &[key], false).await.expect("replay").len(), 1);
    assert_eq!(take(&*store, "noop").await.pop().expect("due").messages.len(), 1);
}

/// A failure is recorded at once, as ever.
#[tokio::test]
async fn of_a_batch_that_failed_in_part_the_rest_is_noted() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 3, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let mut mixed = settlement(&batch, &Fate::Sent);
    mixed.verdicts[0].fate =
        Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO };
    store.settle(&[mixed]).await.expect("settle");
    assert_eq!(status(&*store, &batch, 0).await, "FAILED");
    let again = take(&*store, "noop").await.pop().expect("due again");
    assert_eq!(again.messages.len(), 1);
    store.settle(&[settlement(&again, &Fate::Sent)]).await.expect("settle");
    assert_eq!((count(&client, SAY_SENT).await, count(&client, NOTED).await), (1, 2));
    assert_eq!(count(&client, LEFT).await, 0);
}

#[tokio::test]
async fn elsewhere_it_is_refused_by_name() {
    let options = OpenOptions { record_later: vec!["noop".to_owned()], ..OpenOptions::default() };
    let Err(error) = postroom_store::open("memory:", &options).await else { panic!("opened") };
    assert!(error.to_string().contains("record_sent"), "{error}");
}

/// A restore of the data while the triggers fire puts messages into parcels again that are noted.
#[tokio::test]
async fn what_is_noted_and_in_a_parcel_again_is_not_delivered_after_reconciling() {
    let (_database, client, store) = outbox().await;
    noted(&client, &*store, 2).await;
    let again = "INSERT INTO core_outbox.parcel (lane, number, due_at, lowest, bytes, integration, refs)
        SELECT core_outbox.lane_of('noop'), nextval('core_outbox.parcel_number'), now(), 1, 1, 'noop',
               array_agg(id)
        FROM core_outbox.integration_outbox";
    client.execute(again, &[]).await.expect("restored");
    store.reconcile().await.expect("reconcile");
    assert!(take(&*store, "noop").await.is_empty());
    assert_eq!(count(&client, SAY_SENT).await, 2);
    assert_eq!(count(&client, LEFT).await, 0);
}
