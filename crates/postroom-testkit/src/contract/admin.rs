//! Looking: find, list, count, and whose claim it is.

use super::Harness;
use super::steps::{
    assert_same, dead, enqueue, enqueue_many, failed, find, message, settle_one, take_and_settle,
    take_one,
};
use postroom_core::{Fate, Filter, Record, Status, Store};
use std::time::Duration;
use uuid::Uuid;

async fn list(store: &dyn Store, filter: Filter) -> Vec<Record> {
    store.list(&filter).await.expect("list")
}

fn ids(records: &[Record]) -> Vec<Uuid> {
    records.iter().map(|record| record.message.id).collect()
}

/// An id nobody has is nothing, and no error.
pub async fn an_unknown_id_is_not_found(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    assert!(store.find(Uuid::now_v7()).await.expect("find").is_none());
}

/// A list is newest first, and goes on where the page before ended.
pub async fn a_list_is_newest_first_and_in_pages(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut all = enqueue_many(&*store, "noop", 5).await;
    all.reverse();
    let first = list(&*store, Filter { limit: 2, ..Filter::default() }).await;
    assert_eq!(ids(&first), all[..2]);
    let before = Some(first[1].message.seq);
    let rest = list(&*store, Filter { before, limit: 10, ..Filter::default() }).await;
    assert_eq!(ids(&rest), all[2..]);
    let before = Some(rest[2].message.seq);
    assert!(list(&*store, Filter { before, limit: 10, ..Filter::default() }).await.is_empty());
    // A listed row is the row that is found.
    assert_same(&rest[0], &find(&*store, all[2]).await);
}

/// Each status is listed as the view shows it, CLAIMED included.
pub async fn a_list_is_filtered_by_status_and_integration(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut expected = Vec::new();
    for (status, fate) in [
        (Status::Sent, Fate::Sent),
        (Status::Failed, failed(Duration::from_secs(60))),
        (Status::Dead, dead()),
    ] {
        enqueue(&*store, &message("a")).await;
        expected.push((status, take_and_settle(&*store, "a", fate).await.message.id));
    }
    expected.push((Status::Claimed, enqueue(&*store, &message("a")).await));
    take_one(&*store, "worker", "a").await;
    expected.push((Status::Pending, enqueue(&*store, &message("a")).await));
    let other = enqueue(&*store, &message("b")).await;

    let integration = Some("a".to_owned());
    for (status, id) in &expected {
        let filter = Filter {
            status: Some(*status),
            integration: integration.clone(),
            limit: 10,
            ..Filter::default()
        };
        let found = list(&*store, filter).await;
        assert_eq!(ids(&found), [*id], "{status}");
        assert_eq!(found[0].status, status.as_str());
    }
    let pending = Filter { status: Some(Status::Pending), limit: 10, ..Filter::default() };
    assert_eq!(ids(&list(&*store, pending).await), [other, expected[4].1]);
    let of_a = list(&*store, Filter { integration, limit: 10, ..Filter::default() }).await;
    assert_eq!(of_a.len(), 5);
}

/// Counts cover the whole table, by name.
pub async fn counts_cover_every_status(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert!(store.status_counts().await.expect("counts").counts.is_empty());
    for fate in [Fate::Sent, Fate::Sent, dead(), failed(Duration::from_secs(60))] {
        enqueue(&*store, &message("noop")).await;
        take_and_settle(&*store, "noop", fate).await;
    }
    enqueue_many(&*store, "noop", 3).await;
    take_one(&*store, "worker", "noop").await;
    let counts = store.status_counts().await.expect("counts");
    let of = |status| counts.of(status);
    assert_eq!((of(Status::Sent), of(Status::Dead), of(Status::Failed)), (2, 1, 1));
    assert_eq!((of(Status::Pending), of(Status::Claimed)), (2, 1));
    assert!(counts.counts.is_sorted(), "{:?}", counts.counts);
}

/// The integrations that have something waiting, whether anybody serves them or not.
pub async fn integrations_with_waiting_messages_are_named(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert!(store.integrations().await.expect("integrations").is_empty());
    enqueue_many(&*store, "b", 2).await;
    enqueue(&*store, &message("a")).await;
    enqueue(&*store, &message("done")).await;
    take_and_settle(&*store, "done", Fate::Sent).await;
    assert_eq!(store.integrations().await.expect("integrations"), ["a", "b"]);

    // What was rescued waits too.
    take_one(&*store, "dying", "a").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    assert_eq!(store.integrations().await.expect("integrations"), ["a", "b"]);
}

/// A claim is found by the worker that holds it, and by no other.
pub async fn a_claim_is_found_by_its_worker(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    assert_eq!(store.claim_of("worker", id).await.expect("claim"), None);
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    let held = store.claim_of("worker", id).await.expect("claim");
    assert_eq!(held, Some((token, taken.message.seq)));
    assert_eq!(store.claim_of("other", id).await.expect("claim"), None);
    assert_eq!(store.claim_of("worker", Uuid::now_v7()).await.expect("claim"), None);
    settle_one(&*store, token, &taken, Fate::Sent).await;
    assert_eq!(store.claim_of("worker", id).await.expect("claim"), None);
}

/// A clock that goes forward, in this century.
pub async fn the_clock_goes_forward(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = store.now().await.expect("now");
    let second = store.now().await.expect("now");
    assert!(first <= second);
    assert!(first > "2024-01-01T00:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().expect("time"));
}
