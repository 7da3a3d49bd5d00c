//! The history of failed attempts.

use super::Harness;
use super::steps::{
    assert_between, dead, enqueue, enqueue_many, failed, message, now, rejected, settle_one,
    take_alone, take_and_settle, take_one,
};
use postroom_core::{
    ATTEMPTS_KEPT, Attempt, AttemptOutcome, Fate, MessageId, RESPONSE_BYTES, Store, Tried,
};
use std::time::Duration;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3_600);

async fn attempts(store: &dyn Store, id: &MessageId) -> Vec<Attempt> {
    store.attempts(id).await.expect("attempts")
}

fn fail(error: &str, took_ms: u64) -> Fate {
    let took = Duration::from_millis(took_ms);
    Fate::Failed { delay: Duration::ZERO, error: error.to_owned(), took }
}

/// When, how long, how it ended and why; oldest first.
pub async fn every_failed_attempt_is_kept(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let before = now(&*store).await;
    take_and_settle(&*store, "noop", fail("503", 12)).await;
    take_and_settle(&*store, "noop", fail("504", 0)).await;
    let tried = Tried { outcome: AttemptOutcome::Retry, took: Duration::from_secs(5) };
    let last = Fate::Dead { error: "timed out".to_owned(), tried: Some(tried), announcement: None };
    take_and_settle(&*store, "noop", last).await;
    let after = now(&*store).await;

    let history = attempts(&*store, &id).await;
    let told: Vec<_> = history
        .iter()
        .map(|attempt| (attempt.error.as_str(), attempt.outcome, attempt.took_ms))
        .collect();
    let retry = AttemptOutcome::Retry;
    assert_eq!(told, [("503", retry, 12), ("504", retry, 0), ("timed out", retry, 5_000)]);
    assert!(history.is_sorted_by_key(|attempt| attempt.at));
    history.iter().for_each(|attempt| assert_between(before, attempt.at, after));

    enqueue(&*store, &message("noop")).await;
    let other = take_and_settle(&*store, "noop", dead()).await.message.id;
    let rejected = attempts(&*store, &other).await;
    assert_eq!(rejected.len(), 1);
    assert_eq!((rejected[0].outcome, rejected[0].took_ms), (AttemptOutcome::Reject, 34));
}

/// Successes cost no row, and what was given back was not tried.
pub async fn a_success_and_a_release_leave_no_trace(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", Fate::Released).await;
    take_and_settle(&*store, "noop", fail("503", 1)).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    assert_eq!(attempts(&*store, &id).await.len(), 1, "the failure stays after a success");
    assert_eq!(outbox.attempts().await, 1);
    assert!(attempts(&*store, &Uuid::now_v7().into()).await.is_empty());
}

/// Content that cannot be delivered goes DEAD untried.
pub async fn a_death_without_an_attempt_has_none(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let fate = Fate::Dead { error: "too large".to_owned(), tried: None, announcement: None };
    take_and_settle(&*store, "noop", fate).await;
    assert!(attempts(&*store, &id).await.is_empty());
}

/// What the receiver answered, cut to its limit between two characters. The first word stays.
pub async fn a_response_is_kept_with_the_latest_attempt(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", fail("500", 1)).await;
    let keep = async |response: &str| {
        let responses =
            [(id.clone(), response.to_owned()), (Uuid::now_v7().into(), "nobody's".to_owned())];
        store.keep_responses(&responses).await.expect("keep_responses");
    };
    keep("first").await;
    keep("too late").await;
    take_and_settle(&*store, "noop", fail("500", 1)).await;
    take_and_settle(&*store, "noop", fail("500", 1)).await;
    keep(&format!("\0a{}", "é".repeat(RESPONSE_BYTES))).await;

    let kept: Vec<_> =
        attempts(&*store, &id).await.into_iter().map(|attempt| attempt.response).collect();
    let cut = format!("a{}", "é".repeat(RESPONSE_BYTES / 2 - 1));
    assert_eq!(kept, [Some("first".to_owned()), None, Some(cut)]);
}

/// The late word of a relay that lost its claim is no history.
pub async fn a_late_failure_leaves_no_trace(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "paused", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    for fate in [fail("late", 1), dead()] {
        assert_eq!(settle_one(&*store, token, &taken, fate).await.late, [taken.message.seq]);
    }
    outbox.delete(&id).await;
    let other = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    outbox.delete(&other).await;
    settle_one(&*store, token, &taken, fail("its message is gone", 1)).await;
    assert_eq!(outbox.attempts().await, 0);
}

/// A settlement whose outcome was unknown is repeated; the attempt happened once.
pub async fn a_repeated_settlement_keeps_one(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    for _ in 0..3 {
        let settled = settle_one(&*store, token, &taken, failed(HOUR)).await;
        assert!(settled.late.is_empty());
    }
    assert_eq!(attempts(&*store, &id).await.len(), 1);
}

/// A message that was lost alone was tried; one that was lost among others was not.
pub async fn lost_alone_is_an_attempt(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    assert!(attempts(&*store, &id).await.is_empty());
    take_alone(&*store, "dying-too", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let history = attempts(&*store, &id).await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, AttemptOutcome::Lost);
    assert!(history[0].error.contains("dying-too"), "{}", history[0].error);
}

/// A message that is tried for ever keeps its latest attempts.
pub async fn only_the_latest_are_kept(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    enqueue(&*store, &message("other")).await;
    let other = take_and_settle(&*store, "other", dead()).await.message.id;
    for n in 0..ATTEMPTS_KEPT + 3 {
        take_and_settle(&*store, "noop", fail(&format!("failure {n}"), 1)).await;
    }
    let history = attempts(&*store, &id).await;
    assert_eq!(history.len(), ATTEMPTS_KEPT);
    assert_eq!(history[0].error, "failure 3");
    assert_eq!(history[ATTEMPTS_KEPT - 1].error, format!("failure {}", ATTEMPTS_KEPT + 2));
    assert_eq!(attempts(&*store, &other).await.len(), 1);

    // Lost alone counts here too.
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    take_alone(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let history = attempts(&*store, &id).await;
    assert_eq!(history.len(), ATTEMPTS_KEPT);
    assert_eq!(history[ATTEMPTS_KEPT - 1].outcome, AttemptOutcome::Lost);
}

/// What is pruned leaves nothing behind.
pub async fn attempts_go_with_their_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut all = Vec::new();
    for _ in 0..2 {
        all.extend(enqueue_many(&*store, "noop", 1).await);
        take_and_settle(&*store, "noop", fail("503", 1)).await;
        take_and_settle(&*store, "noop", Fate::Sent).await;
    }
    outbox.make_older(&all[0], 2 * HOUR).await;
    assert_eq!(store.prune(HOUR, 10).await.expect("prune"), 1);
    assert!(attempts(&*store, &all[0]).await.is_empty());
    assert_eq!(attempts(&*store, &all[1]).await.len(), 1);
    assert_eq!(outbox.attempts().await, 1);
}

/// Nobody sees a message go that is deleted by hand: pruning finds its attempts, step by step.
pub async fn attempts_of_a_message_that_was_deleted_are_swept(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 5).await;
    for _ in &all {
        let fate =
            Fate::Dead { error: "400".to_owned(), tried: Some(rejected()), announcement: None };
        take_and_settle(&*store, "noop", fate).await;
    }
    for id in [all[0].clone(), all[2].clone(), all[4].clone()] {
        outbox.delete(&id).await;
    }
    // Two messages at a time: the whole round takes three steps, and begins again.
    for _ in 0..3 {
        store.prune(HOUR, 2).await.expect("prune");
    }
    assert_eq!(outbox.attempts().await, 2);
    outbox.delete(&all[1]).await;
    for _ in 0..3 {
        store.prune(HOUR, 2).await.expect("prune");
    }
    assert_eq!(outbox.attempts().await, 1);
    assert_eq!(attempts(&*store, &all[3]).await.len(), 1);
}

/// An outbox that keeps no messages keeps no attempts either.
pub async fn without_history_attempts_leave_with_their_message(outbox: &impl Harness) {
    let store = outbox.store_without_history().await;
    enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", fail("503", 1)).await;
    assert_eq!(outbox.attempts().await, 1);
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    settle_one(&*store, token, &taken, Fate::Sent).await;
    assert_eq!(outbox.attempts().await, 0);
}
