//! Looking: find, list, count, and whose claim it is.

use super::Harness;
use super::steps::{
    assert_same, dead, enqueue, enqueue_many, failed, find, message, now, settle_one,
    take_and_settle, take_one,
};
use postroom_core::{Fate, Filter, MessageId, Record, Status, Store};
use std::slice;
use std::time::Duration;
use uuid::Uuid;

async fn list(store: &dyn Store, filter: Filter) -> Vec<Record> {
    store.list(&filter).await.expect("list")
}

fn ids(records: &[Record]) -> Vec<MessageId> {
    records.iter().map(|record| record.message.id.clone()).collect()
}

/// An id nobody has is nothing, and no error.
pub async fn an_unknown_id_is_not_found(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    assert!(store.find(&Uuid::now_v7().into()).await.expect("find").is_none());
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
    assert_same(&rest[0], &find(&*store, &all[2]).await);
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
        assert_eq!(ids(&found), slice::from_ref(id), "{status}");
        assert_eq!(found[0].status, status.as_str());
    }
    let pending = Filter { status: Some(Status::Pending), limit: 10, ..Filter::default() };
    assert_eq!(ids(&list(&*store, pending).await), [other, expected[4].1.clone()]);
    let of_a = list(&*store, Filter { integration, limit: 10, ..Filter::default() }).await;
    assert_eq!(of_a.len(), 5);
}

/// Each column that tools ask for.
pub async fn a_list_is_filtered_by_what_a_message_says(outbox: &impl Harness) {
    let store = outbox.store().await;
    let text = |text: &str| Some(text.to_owned());
    let mut wanted = message("a").event_id("evt-1").stream("order-7");
    wanted.event_type = "invoice.paid.v1".to_owned();
    wanted.tenant_id = text("acme");
    wanted.correlation_id = text("req-7");
    let wanted = enqueue(&*store, &wanted).await;
    let mut other = message("b").event_id("evt-2");
    other.tenant_id = text("other");
    enqueue(&*store, &other).await;
    enqueue(&*store, &message("b")).await;

    let all = || Filter { limit: 10, ..Filter::default() };
    for filter in [
        Filter { tenant: text("acme"), ..all() },
        Filter { event_type: text("invoice.paid.v1"), ..all() },
        Filter { correlation: text("req-7"), ..all() },
        Filter { event_id: text("evt-1"), ..all() },
        Filter { stream: text("order-7"), ..all() },
        Filter { stream: text("order-7"), status: Some(Status::Pending), ..all() },
        Filter { event_id: text("evt-1"), tenant: text("acme"), ..all() },
    ] {
        assert_eq!(
            ids(&list(&*store, filter.clone()).await),
            slice::from_ref(&wanted),
            "{filter:?}"
        );
        let elsewhere = Filter { integration: text("b"), ..filter };
        assert!(list(&*store, elsewhere.clone()).await.is_empty(), "{elsewhere:?}");
    }
    let hostile = Filter { tenant: text("' OR '1' = '1"), ..all() };
    assert!(list(&*store, hostile).await.is_empty());
}

/// From a moment on, and up to one; both by when a message was enqueued.
pub async fn a_list_is_filtered_by_time(outbox: &impl Harness) {
    const HOUR: Duration = Duration::from_secs(3_600);
    let store = outbox.store().await;
    let old = enqueue(&*store, &message("noop")).await;
    outbox.make_older(&old, 3 * HOUR).await;
    let young = enqueue(&*store, &message("noop")).await;
    let now = now(&*store).await;
    let all = || Filter { limit: 10, ..Filter::default() };
    for (status, since) in [(None, true), (Some(Status::Pending), true), (None, false)] {
        let (filter, found) = if since {
            (Filter { status, since: Some(now - HOUR), ..all() }, young.clone())
        } else {
            (Filter { status, until: Some(now - HOUR), ..all() }, old.clone())
        };
        assert_eq!(ids(&list(&*store, filter.clone()).await), [found], "{filter:?}");
    }
    // A moment belongs to what begins with it.
    let exactly = find(&*store, &young).await.message.created_at;
    let from = Filter { since: Some(exactly), ..all() };
    assert_eq!(ids(&list(&*store, from).await), [young]);
    let before = Filter { until: Some(exactly), ..all() };
    assert_eq!(ids(&list(&*store, before).await), [old]);
    let neither = Filter { since: Some(now - 2 * HOUR), until: Some(now - HOUR), ..all() };
    assert!(list(&*store, neither).await.is_empty());
}

/// Whatever the status, the pages hold each message once, and no other.
pub async fn filters_are_joined_and_paged_in_every_status(outbox: &impl Harness) {
    let store = outbox.store().await;
    let fates = [
        (Status::Sent, Some(Fate::Sent)),
        (Status::Failed, Some(failed(Duration::from_secs(60)))),
        (Status::Dead, Some(dead())),
        (Status::Claimed, None),
    ];
    let mut expected: Vec<(Status, Vec<MessageId>)> = Vec::new();
    for (status, fate) in fates {
        let mut wanted = Vec::new();
        for n in 0..6 {
            // Half of them to another integration, a third of another tenant.
            let lane = if n % 2 == 0 { "a" } else { "b" };
            let mut new = message(lane);
            new.tenant_id = (n % 3 != 0).then(|| "acme".to_owned());
            let id = enqueue(&*store, &new).await;
            match &fate {
                Some(fate) => drop(take_and_settle(&*store, lane, fate.clone()).await),
                None => drop(take_one(&*store, "worker", lane).await),
            }
            if n % 3 != 0 {
                wanted.insert(0, id);
            }
        }
        expected.push((status, wanted));
    }
    for (status, wanted) in expected {
        let mut found = Vec::new();
        let mut before = None;
        loop {
            let filter = Filter {
                status: Some(status),
                tenant: Some("acme".to_owned()),
                before,
                limit: 3,
                ..Filter::default()
            };
            let page = list(&*store, filter).await;
            assert!(page.iter().all(|record| record.status == status.as_str()), "{status}");
            found.extend(ids(&page));
            match page.last() {
                Some(last) => before = Some(last.message.seq),
                None => break,
            }
        }
        assert_eq!(found, wanted, "{status}");
    }
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
    assert_eq!(store.claim_of("worker", &id).await.expect("claim"), None);
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    let held = store.claim_of("worker", &id).await.expect("claim");
    assert_eq!(held, Some((token, taken.message.seq)));
    assert_eq!(store.claim_of("other", &id).await.expect("claim"), None);
    assert_eq!(store.claim_of("worker", &Uuid::now_v7().into()).await.expect("claim"), None);
    settle_one(&*store, token, &taken, Fate::Sent).await;
    assert_eq!(store.claim_of("worker", &id).await.expect("claim"), None);
}

/// A clock that goes forward, in this century.
pub async fn the_clock_goes_forward(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = store.now().await.expect("now");
    let second = store.now().await.expect("now");
    assert!(first <= second);
    assert!(first > "2024-01-01T00:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().expect("time"));
}
