//! Rescuing what a dead relay held.

use super::Harness;
use super::steps::{
    assert_nothing_due, assert_same, enqueue, enqueue_many, failed, find, fresh_relay, ids,
    message, settle, settle_one, take, take_alone, take_by, take_lost, take_one, take_rescued,
    verdict, wish,
};
use postroom_core::{Batch, Fate, Fence, Quota, Rescued, Settlement, Store};
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
    assert_eq!(find(&*store, &id).await.status, "CLAIMED");
}

/// A rescue is no attempt: the row is as it was before it was taken.
pub async fn a_rescued_message_is_untouched(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let before = find(&*store, &id).await;
    lose(outbox, &*store, "noop").await;
    assert_same(&find(&*store, &id).await, &before);
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (1, 0));
}

/// Each lane's come under a token of their own, by due time, and never with what was not rescued.
pub async fn rescued_messages_come_in_claims_of_their_own(outbox: &impl Harness) {
    let store = outbox.store().await;
    let a = enqueue_many(&*store, "a", 4).await;
    let b = enqueue_many(&*store, "b", 2).await;
    lose(outbox, &*store, "a").await;
    lose(outbox, &*store, "b").await;
    let fresh = enqueue(&*store, &message("a")).await;

    let usual = take(&*store, "worker", &["a", "b"], 10).await.expect("due");
    assert_eq!(ids(&usual), [fresh]);
    let mut rescued = take_lost(&*store, "worker", &["a", "b"], 6, Rescued::Together).await;
    rescued.sort_by_key(|batch| batch.messages[0].message.integration.clone());
    assert_eq!(rescued.iter().map(ids).collect::<Vec<_>>(), [a[..3].to_vec(), b]);
    assert_ne!(rescued[0].token, rescued[1].token);
    assert!(rescued.iter().flat_map(|batch| &batch.messages).all(|taken| taken.rescues == 1));
    let next = take_lost(&*store, "worker", &["a", "b"], 6, Rescued::Together).await;
    assert_eq!(next.iter().flat_map(ids).collect::<Vec<_>>(), [a[3].clone()]);
    for batch in rescued.into_iter().chain(next) {
        let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
        assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
    }
    // What another relay took is not counted with it.
    settle_one(&*store, usual.token, &usual.messages[0], Fate::Sent).await;
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (0, 0));
}

/// With every loss the claims are half as large, until each message is alone; only then an attempt
/// is counted.
pub async fn fault_25_claims_are_halved_until_a_message_is_alone(outbox: &impl Harness) {
    const ROWS: usize = 16;
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", ROWS).await;
    lose(outbox, &*store, "noop").await;
    for together in [8, 4, 2] {
        let none = take_lost(&*store, "dying", &["noop"], ROWS, Rescued::Alone).await;
        assert!(none.is_empty(), "none is alone yet: {none:?}");
        let mut taken = Vec::new();
        while taken.len() < ROWS {
            let claims = take_lost(&*store, "dying", &["noop"], ROWS, Rescued::Together).await;
            assert_eq!(claims.iter().map(|claim| claim.messages.len()).sum::<usize>(), together);
            taken.extend(claims.iter().flat_map(ids));
        }
        assert_eq!(taken, all, "by due time");
        outbox.expire_claims().await;
        assert_eq!(store.rescue(100).await.expect("rescue"), ROWS as u64);
        for id in &all {
            assert_eq!(find(&*store, id).await.message.attempts, 0);
        }
    }
    assert!(take_lost(&*store, "dying", &["noop"], ROWS, Rescued::Together).await.is_empty());
    let alone = take_lost(&*store, "dying", &["noop"], ROWS, Rescued::Alone).await;
    assert_eq!(alone.iter().flat_map(ids).collect::<Vec<_>>(), all[..1]);
    outbox.expire_claims().await;
    assert_eq!(store.rescue(100).await.expect("rescue"), 1);
    for (id, attempts) in all.iter().zip([1, 0, 0, 0]) {
        assert_eq!(find(&*store, id).await.message.attempts, attempts);
    }
}

/// Messages that go alone do not stand in the way of others, and of several lanes one comes at a
/// time where one is asked for.
pub async fn messages_that_go_alone_hold_up_no_others(outbox: &impl Harness) {
    let store = outbox.store().await;
    let alone = enqueue_many(&*store, "a", 3).await;
    for _ in 0..2 {
        take(&*store, "dying", &["a"], 10).await;
        take_lost(&*store, "dying", &["a"], 10, Rescued::Together).await;
        outbox.expire_claims().await;
        store.rescue(10).await.expect("rescue");
    }
    let others = enqueue_many(&*store, "a", 2).await;
    enqueue_many(&*store, "b", 1).await;
    lose(outbox, &*store, "a").await;
    lose(outbox, &*store, "b").await;
    // Rescued twice, and once: of seven rows one may go after two rescues, and three after one.
    let together = take_lost(&*store, "worker", &["a"], 7, Rescued::Together).await;
    assert_eq!(together.iter().flat_map(ids).collect::<Vec<_>>(), others);
    let quotas = ["a", "b"].map(|lane| Quota { integration: lane.to_owned(), rows: 1 });
    let mut wish = wish(&*store, "worker", &quotas).await;
    wish.rows = 1;
    let one = store.take_rescued(&wish, Rescued::Alone).await.expect("take");
    assert_eq!(one.iter().flat_map(ids).collect::<Vec<_>>(), alone[..1]);
}

/// What content weighs bounds a claim of rescued messages too.
pub async fn the_byte_limit_ends_a_claim_of_rescued_messages(outbox: &impl Harness) {
    let store = outbox.store().await;
    let large = "x".repeat(2_000);
    for _ in 0..4 {
        enqueue(&*store, &message("noop").json(&large)).await;
    }
    lose(outbox, &*store, "noop").await;
    let quotas = [Quota { integration: "noop".to_owned(), rows: 100 }];
    let mut wish = wish(&*store, "worker", &quotas).await;
    wish.bytes = 10;
    let taken = store.take_rescued(&wish, Rescued::Together).await.expect("take");
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
}

/// A claim of the relay that asks is left to it, however long it has expired: an outcome that could
/// not be recorded in time still counts.
pub async fn fault_52_a_claim_that_the_caller_holds_is_left_to_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    let relay = fresh_relay(&*store, "itself").await;
    let id = enqueue(&*store, &message("a")).await;
    let batch = take_by(&*store, relay, "a", 1, false).await;
    enqueue(&*store, &message("b")).await;
    take_one(&*store, "another", "b").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue_except(relay, 1).await.expect("rescue"), 1, "the other's");
    assert_eq!(store.rescue_except(relay, 10).await.expect("rescue"), 0);
    let settled = settle_one(&*store, batch.token, &batch.messages[0], Fate::Sent).await;
    assert!(settled.late.is_empty());
    assert_eq!(find(&*store, &id).await.status, "SENT");
    assert_eq!(take_rescued(&*store, "worker", &["a", "b"]).await.len(), 1);
}

/// A rescued message that waits for its time keeps waiting.
pub async fn a_rescued_message_keeps_its_due_time(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let due_at = find(&*store, &id).await.message.due_at;
    lose(outbox, &*store, "noop").await;
    let rescued = take_rescued(&*store, "worker", &["noop"]).await;
    assert_eq!(rescued[0].messages[0].message.due_at, due_at);
}

/// Lost with others, nothing counts; lost while it was handled alone, it was this message.
pub async fn fault_25_lost_alone_counts_as_an_attempt(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, &id).await;
    lose(outbox, &*store, "noop").await;
    for attempts in 1..=3 {
        let rescued = take_alone(&*store, "worker-9", "noop").await;
        assert_eq!(rescued.messages[0].message.attempts, attempts - 1);
        assert_eq!(rescued.messages[0].rescues, attempts);
        outbox.expire_claims().await;
        assert_eq!(store.rescue(10).await.expect("rescue"), 1);

        let record = find(&*store, &id).await;
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
pub async fn a_known_failure_clears_the_count(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    lose(outbox, &*store, "noop").await;
    let rescued = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    settle_one(&*store, rescued.token, &rescued.messages[0], failed(Duration::ZERO)).await;
    assert!(take_rescued(&*store, "worker", &["noop"]).await.is_empty());
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.rescues, taken.message.attempts), (id, 0, 1));
}

/// A release says nothing of the message: it is still one that was rescued.
pub async fn a_released_rescue_is_still_one(outbox: &impl Harness) {
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
    assert_eq!(find(&*store, &batch.messages[0].message.id).await.status, "SENT");
    assert_eq!(find(&*store, &batch.messages[1].message.id).await.status, "PENDING");

    let rescued = take_rescued(&*store, "dying", &["noop"]).await.pop().expect("rescued");
    settle(&*store, rescued.token, vec![verdict(&rescued.messages[0], Fate::Sent)], false).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(outbox.claims().await, 0);
    assert_nothing_due(&*store, "noop").await;
}

/// Where SENT messages leave at once, those of a batch that was settled in part were not lost.
pub async fn what_left_when_it_was_sent_is_not_rescued(outbox: &impl Harness) {
    let store = outbox.store_without_history().await;
    let together: Vec<_> = (0..3).map(|_| message("noop")).collect();
    store.accept(&together, None).await.expect("accepted");
    let batch = take(&*store, "dying", &["noop"], 10).await.expect("due");
    let sent = batch.messages[..2].iter().map(|taken| verdict(taken, Fate::Sent)).collect();
    settle(&*store, batch.token, sent, false).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let rescued = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    assert_eq!(ids(&rescued), [batch.messages[2].message.id.clone()]);
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
