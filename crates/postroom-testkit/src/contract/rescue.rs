//! Rescuing what a dead relay held.

use super::Harness;
use super::steps::{
    assert_nothing_due, assert_same, enqueue, enqueue_many, failed, find, ids, message, settle,
    settle_one, take, take_one, take_rescued, verdict,
};
use postroom_core::{Batch, Fate, Fence, Settlement, Store};
use std::collections::HashSet;
use std::time::Duration;

/// Takes everything in a lane, and loses it.
async fn lose(outbox: &impl Harness, store: &dyn Store, lane: &str) -> Batch {
    let batch = take(store, "dying", &[lane], 100).await.expect("due");
    outbox.expire_claims().await;
    assert_eq!(store.rescue(100).await.expect("rescue"), batch.messages.len() as u64);
    batch
}

/// A claim that has time left is nobody's to take away.
pub async fn a_living_claim_is_left_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "worker", "noop").await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(find(&*store, id).await.status, "CLAIMED");
}

/// A rescue is no attempt: the row is as it was before it was taken.
pub async fn a_rescued_message_is_untouched(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let before = find(&*store, id).await;
    lose(outbox, &*store, "noop").await;
    assert_same(&find(&*store, id).await, &before);
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (1, 0));
}

/// What was rescued comes one by one, under tokens of their own, and never with others.
pub async fn rescued_messages_are_taken_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let a = enqueue_many(&*store, "a", 2).await;
    let b = enqueue_many(&*store, "b", 2).await;
    lose(outbox, &*store, "a").await;
    lose(outbox, &*store, "b").await;
    let fresh = enqueue(&*store, &message("a")).await;

    let usual = take(&*store, "worker", &["a", "b"], 10).await.expect("due");
    assert_eq!(ids(&usual), [fresh]);
    let rescued = take_rescued(&*store, "worker", &["a", "b"]).await;
    assert_eq!(rescued.iter().flat_map(ids).collect::<HashSet<_>>(), [a[0], b[0]].into());
    assert_ne!(rescued[0].token, rescued[1].token);
    for batch in &rescued {
        assert_eq!((batch.messages.len(), batch.messages[0].rescues), (1, 1));
    }
    let next = take_rescued(&*store, "worker", &["a"]).await;
    assert_eq!(next.iter().flat_map(ids).collect::<Vec<_>>(), [a[1]]);
}

/// A rescued message that waits for its time keeps waiting.
pub async fn a_rescued_message_keeps_its_due_time(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let due_at = find(&*store, id).await.message.due_at;
    lose(outbox, &*store, "noop").await;
    let rescued = take_rescued(&*store, "worker", &["noop"]).await;
    assert_eq!(rescued[0].messages[0].message.due_at, due_at);
}

/// Lost with others, nothing counts; lost alone, it was this message, and that counts.
pub async fn fault_25_lost_alone_counts_as_an_attempt(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, id).await;
    lose(outbox, &*store, "noop").await;
    for attempts in 1..=3 {
        let rescued = take_rescued(&*store, "worker-9", &["noop"]).await.pop().expect("rescued");
        assert_eq!(rescued.messages[0].message.attempts, attempts - 1);
        assert_eq!(rescued.messages[0].rescues, attempts);
        outbox.expire_claims().await;
        assert_eq!(store.rescue(10).await.expect("rescue"), 1);

        let record = find(&*store, id).await;
        let error = record.last_error.clone().expect("a reason");
        assert!(error.starts_with("lost with its relay: the claim of worker-9 expired"), "{error}");
        expected.status = "FAILED".to_owned();
        expected.message.attempts = attempts;
        expected.last_error = Some(error);
        expected.updated_at = record.updated_at;
        assert_same(&record, &expected);
    }
}

/// A known outcome clears the count: the message is one among others again.
pub async fn a_known_failure_ends_being_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    lose(outbox, &*store, "noop").await;
    let rescued = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    settle_one(&*store, rescued.token, &rescued.messages[0], failed(Duration::ZERO)).await;
    assert!(take_rescued(&*store, "worker", &["noop"]).await.is_empty());
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.rescues, taken.message.attempts), (id, 0, 1));
}

/// A release says nothing of the message: it is still to be taken alone.
pub async fn a_released_rescue_is_taken_alone_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    lose(outbox, &*store, "noop").await;
    let rescued = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    settle_one(&*store, rescued.token, &rescued.messages[0], Fate::Released).await;
    assert!(take(&*store, "worker", &["noop"], 10).await.is_none());
    let again = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    assert_eq!(again.messages[0].rescues, 1);
    // Nor does putting it off.
    let postponed = Fate::Postponed { delay: Duration::ZERO };
    settle_one(&*store, again.token, &again.messages[0], postponed).await;
    assert!(take(&*store, "worker", &["noop"], 10).await.is_none());
    let again = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    assert_eq!(again.messages[0].rescues, 1);
}

/// A rescue does so many claims and no more, and leaves the rest to the next.
pub async fn a_rescue_stops_at_its_limit(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 6).await;
    for _ in 0..3 {
        take(&*store, "dying", &["noop"], 2).await.expect("due");
    }
    outbox.expire_claims().await;
    assert_eq!(store.rescue(2).await.expect("rescue"), 4);
    assert_eq!(outbox.claims().await, 1);
    assert_eq!(store.rescue(2).await.expect("rescue"), 2);
    assert_eq!(store.rescue(2).await.expect("rescue"), 0);
}

/// What was settled before the relay died is not rescued, and the empty claim goes.
pub async fn only_what_is_unsettled_is_rescued(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 2).await;
    let batch = take(&*store, "dying", &["noop"], 10).await.expect("due");
    settle(&*store, batch.token, vec![verdict(&batch.messages[0], Fate::Sent)], false).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(find(&*store, batch.messages[0].message.id).await.status, "SENT");
    assert_eq!(find(&*store, batch.messages[1].message.id).await.status, "PENDING");

    let rescued = take_rescued(&*store, "dying", &["noop"]).await.pop().expect("rescued");
    settle(&*store, rescued.token, vec![verdict(&rescued.messages[0], Fate::Sent)], false).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(outbox.claims().await, 0);
    assert_nothing_due(&*store, "noop").await;
}

/// Claims that hold nothing any more do not stand in the way of one that does.
pub async fn empty_claims_in_front_are_passed(outbox: &impl Harness) {
    let store = outbox.store().await;
    for _ in 0..8 {
        enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "dying", "noop").await;
        let verdicts = vec![verdict(&taken, Fate::Sent)];
        let settlement = Settlement { fence: Fence::Claim(token), verdicts, finished: false };
        store.settle(&[settlement]).await.expect("settled");
    }
    enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(3).await.expect("rescue"), 1);
}
