//! The single form: one message at a time, each call by the worker that claimed.

use chrono::SubsecRound as _;
use postroom_core::{MessageId, NewMessage, Record, Store, StoreErrorKind};
use postroom_store::Repository;
use postroom_testkit::contract::{Harness, PlainRow};
use std::time::Duration;

const CLAIM_TIME: Duration = Duration::from_secs(600);

fn message(integration: &str) -> NewMessage {
    NewMessage::new(integration, "order.created.v1")
}

async fn find(store: &dyn Store, id: &MessageId) -> Record {
    store.find(id).await.expect("find").expect("the message")
}

async fn each_call_does_what_its_name_says(outbox: &impl Harness) {
    let store = outbox.store().await;
    let repository = Repository::new(&*store, CLAIM_TIME);
    let mut ids = Vec::new();
    for integration in ["a", "a", "b", "c"] {
        ids.push(repository.enqueue(&message(integration)).await.expect("enqueue").into_id());
    }
    let claimed = repository.claim_due_batch("worker", 10).await.expect("claim");
    let mut claimed: Vec<MessageId> = claimed.iter().map(|message| message.id.clone()).collect();
    claimed.sort();
    assert_eq!(claimed, ids);
    assert!(repository.claim_due_batch("worker", 10).await.expect("claim").is_empty());

    let next_due_at = store.now().await.expect("now").trunc_subsecs(3) + Duration::from_secs(90);
    repository.mark_sent("worker", &ids[0]).await.expect("sent");
    repository.mark_failed("worker", &ids[1], "503", next_due_at).await.expect("failed");
    repository.dead_letter("worker", &ids[2], "400").await.expect("dead");
    repository.release("worker", &ids[3]).await.expect("released");

    assert_eq!(find(&*store, &ids[0]).await.status, "SENT");
    let failed = find(&*store, &ids[1]).await;
    assert_eq!((failed.status.as_str(), failed.message.attempts), ("FAILED", 1));
    assert_eq!(failed.last_error.as_deref(), Some("503"));
    let drift = (failed.message.due_at - next_due_at).abs();
    assert!(drift < chrono::TimeDelta::seconds(5), "due {drift} off");
    let dead = find(&*store, &ids[2]).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 1));
    assert_eq!(find(&*store, &ids[3]).await.status, "PENDING");
    let again = repository.claim_due_batch("worker", 10).await.expect("claim");
    assert_eq!(
        again.iter().map(|message| message.id.clone()).collect::<Vec<_>>(),
        [ids[3].clone()]
    );
}

async fn a_batch_is_no_larger_than_asked(outbox: &impl Harness) {
    let store = outbox.store().await;
    let repository = Repository::new(&*store, CLAIM_TIME);
    for integration in ["a", "a", "b", "b"] {
        repository.enqueue(&message(integration)).await.expect("enqueue");
    }
    assert_eq!(repository.claim_due_batch("worker", 3).await.expect("claim").len(), 3);
    assert_eq!(repository.claim_due_batch("worker", 3).await.expect("claim").len(), 1);
}

async fn only_the_worker_that_claimed_is_heard(outbox: &impl Harness) {
    let store = outbox.store().await;
    let repository = Repository::new(&*store, CLAIM_TIME);
    let id = repository.enqueue(&message("a")).await.expect("enqueue").into_id();
    let unclaimed = repository.mark_sent("worker", &id).await.expect_err("nobody holds it");
    assert_eq!(unclaimed.kind, StoreErrorKind::Refused);
    repository.claim_due_batch("worker", 10).await.expect("claim");
    let other = repository.mark_sent("other", &id).await.expect_err("the other holds nothing");
    assert_eq!(other.kind, StoreErrorKind::Refused);
    assert_eq!(find(&*store, &id).await.status, "CLAIMED");

    // Lost, and taken by another: the first one's word no longer counts.
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let rescued = repository.claim_due_batch("other", 10).await.expect("claim");
    assert_eq!(rescued.len(), 1);
    repository.dead_letter("worker", &id, "late").await.expect_err("the claim is lost");
    repository.mark_sent("other", &id).await.expect("sent");
    assert_eq!(find(&*store, &id).await.status, "SENT");
}

async fn what_cannot_be_delivered_goes_dead_and_is_not_handed_out(outbox: &impl Harness) {
    let store = outbox.store().await;
    let repository = Repository::new(&*store, CLAIM_TIME);
    let odd = PlainRow::new("a").with("headers", "[1]");
    let odd = outbox.insert(&odd).await.expect("a row that makes no sense");
    let good = repository.enqueue(&message("a")).await.expect("enqueue").into_id();
    let claimed = repository.claim_due_batch("worker", 10).await.expect("claim");
    assert_eq!(claimed.iter().map(|message| message.id.clone()).collect::<Vec<_>>(), [good]);
    let odd = find(&*store, &odd).await;
    assert_eq!((odd.status.as_str(), odd.message.attempts), ("DEAD", 0));
    assert!(odd.last_error.expect("a reason").contains("headers"));
}

macro_rules! on_every_store {
    ($($test:ident)*) => {
        on_every_store!(@store mariadb $($test)*);
        on_every_store!(@store memory $($test)*);
        on_every_store!(@store postgres $($test)*);
        on_every_store!(@store sqlite $($test)*);
    };
    (@store $store:ident $($test:ident)*) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(&crate::$store::start().await).await;
                }
            )*
        }
    };
}

on_every_store! {
    each_call_does_what_its_name_says
    a_batch_is_no_larger_than_asked
    only_the_worker_that_claimed_is_heard
    what_cannot_be_delivered_goes_dead_and_is_not_handed_out
}
