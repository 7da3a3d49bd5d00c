//! Taking: by due time, within limits, never twice.

use super::Harness;
use super::steps::{
    assert_between, assert_nothing_due, assert_same, enqueue, enqueue_many, failed, find, ids,
    in_ms, message, now, settle, take, take_and_settle, take_batches, take_one, take_within,
    verdict,
};
use postroom_core::{ContentFault, Fate, Settled, Take};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// Within a lane, what was due first comes first, whatever was enqueued first.
pub async fn a_lane_goes_by_due_time(outbox: &impl Harness) {
    let store = outbox.store().await;
    let base = in_ms(now(&*store).await) - Duration::from_secs(100);
    let mut by_due = Vec::new();
    for offset in [5, 1, 4, 2, 3] {
        let due_at = base + Duration::from_secs(offset);
        by_due.push((due_at, enqueue(&*store, &message("noop").due_at(due_at)).await));
    }
    by_due.sort();
    let by_due: Vec<_> = by_due.into_iter().map(|(_, id)| id).collect();

    // Given back, none of them is fresh any more: those may come in the order of their insertion.
    let all = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&all), by_due, "in a batch they are in order all the same");
    let back = all.messages.iter().map(|taken| verdict(taken, Fate::Released)).collect();
    assert_eq!(settle(&*store, all.token, back, true).await, Settled::default());
    let mut tokens = BTreeSet::new();
    let mut batches = 0;
    for (rows, expected) in [(2, &by_due[..2]), (10, &by_due[2..])] {
        let taken = take_batches(&*store, "worker", &["noop"], rows, |_| {}).await;
        assert_eq!(taken.iter().flat_map(ids).collect::<Vec<_>>(), expected);
        tokens.extend(taken.iter().map(|batch| batch.token));
        batches += taken.len();
    }
    assert_eq!(tokens.len(), batches, "each has a token of its own");
}

/// Messages due at the same moment come in the order of their numbers.
pub async fn the_same_due_time_goes_by_number(outbox: &impl Harness) {
    let store = outbox.store().await;
    let due_at = in_ms(now(&*store).await) - Duration::from_secs(1);
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(enqueue(&*store, &message("noop").due_at(due_at)).await);
    }
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), expected);
}

/// What is taken is what was enqueued, whole.
pub async fn a_taken_message_is_the_stored_one(outbox: &impl Harness) {
    let store = outbox.store().await;
    let new = message("noop")
        .tenant("acme")
        .headers(&json!({"k": "v"}))
        .occurred_at("2026-01-01T00:00:00.001Z".parse().expect("a time"));
    let id = enqueue(&*store, &new).await;
    let stored = find(&*store, &id).await;
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.rescues, taken.fault), (0, None));
    let mut as_record = stored.clone();
    as_record.message = taken.message;
    assert_same(&as_record, &stored);
}

/// The view tells who holds a message, and since when; the rest of the row stands still.
pub async fn a_taken_message_is_shown_as_claimed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, &id).await;
    let before = now(&*store).await;
    take_one(&*store, "worker-7", "noop").await;
    let after = now(&*store).await;

    let claimed = find(&*store, &id).await;
    assert_between(before, claimed.locked_at.expect("a time"), after);
    expected.status = "CLAIMED".to_owned();
    expected.locked_by = Some("worker-7".to_owned());
    expected.locked_at = claimed.locked_at;
    assert_same(&claimed, &expected);
    assert_eq!(outbox.claims().await, 1);
}

/// Nothing is taken before it is due.
pub async fn what_is_due_later_stays(outbox: &impl Harness) {
    let store = outbox.store().await;
    let later = now(&*store).await + Duration::from_secs(3_600);
    enqueue(&*store, &message("noop").due_at(in_ms(later))).await;
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(outbox.claims().await, 0);
}

/// A failed message is taken again once it is due.
pub async fn failed_and_due_is_taken_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", failed(Duration::from_secs(3_600))).await;
    assert_nothing_due(&*store, "noop").await;

    enqueue(&*store, &message("other")).await;
    let retried = take_and_settle(&*store, "other", failed(Duration::ZERO)).await;
    let (_, taken) = take_one(&*store, "worker", "other").await;
    assert_eq!((taken.message.id, taken.message.attempts), (retried.message.id, 1));
    assert_eq!(find(&*store, &id).await.status, "FAILED");
}

/// A message that is held is nobody else's.
pub async fn what_is_held_is_not_taken_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 3).await;
    let first = take(&*store, "one", &["noop"], 2).await.expect("due");
    let second = take(&*outbox.store().await, "two", &["noop"], 10).await.expect("due");
    assert_eq!((first.messages.len(), second.messages.len()), (2, 1));
    assert_nothing_due(&*store, "noop").await;
}

/// A relay takes what it has lanes for, and nothing else.
pub async fn an_unknown_integration_is_never_taken(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("nobody:knows")).await;
    let known = enqueue(&*store, &message("noop")).await;
    let batch = take(&*store, "worker", &["noop", "stdout"], 10).await.expect("due");
    assert_eq!(ids(&batch), [known]);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &id).await.status, "PENDING");
}

/// Each lane gives at most its quota, and all together at most the rows asked for.
pub async fn quotas_and_the_row_limit_hold(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "a", 5).await;
    enqueue_many(&*store, "b", 5).await;
    let batch = take(&*store, "worker", &["a", "b"], 2).await.expect("due");
    let of = |lane: &str| {
        batch.messages.iter().filter(|taken| taken.message.integration == lane).count()
    };
    assert_eq!((of("a"), of("b")), (2, 2));

    let three = take_within(&*store, "worker", &["a", "b"], 10, |take| take.rows = 3).await;
    assert_eq!(three.expect("due").messages.len(), 3);
    let none = take_within(&*store, "worker", &["a", "b"], 10, |take| take.rows = 0).await;
    assert!(none.is_none());
    assert!(take(&*store, "worker", &["a", "b"], 0).await.is_none());
    assert!(take(&*store, "worker", &[], 10).await.is_none());
    let rest = take(&*store, "worker", &["a", "b"], 10).await.expect("due");
    assert_eq!(rest.messages.len(), 3);
}

/// A batch ends where its bytes do, and the next one goes on from there.
pub async fn the_byte_limit_ends_a_batch(outbox: &impl Harness) {
    const LIMIT: usize = 35_000;
    let store = outbox.store().await;
    let mut expected = Vec::new();
    for _ in 0..10 {
        expected.push(enqueue(&*store, &message("noop").json(&noise(10_000))).await);
    }
    let mut taken = Vec::new();
    while let Some(batch) =
        take_within(&*store, "worker", &["noop"], 100, |take| take.bytes = LIMIT).await
    {
        // The last one may cross the limit where sizes are known only by estimate.
        assert!((1..=4).contains(&batch.messages.len()), "{} messages", batch.messages.len());
        taken.extend(ids(&batch));
    }
    assert_eq!(taken, expected);
}

/// A message alone over the byte limit is taken all the same.
pub async fn a_single_message_may_exceed_the_byte_limit(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop").json(&noise(10_000))).await;
    let batch = take_within(&*store, "worker", &["noop"], 100, |take| take.bytes = 1).await;
    assert_eq!(ids(&batch.expect("due")), [id]);
}

/// Lanes are served in the order asked for, each up to its quota: a backlog of large, older messages
/// uses up what is left of the limits, and not what other lanes need.
pub async fn a_lane_of_large_older_messages_delays_no_other(outbox: &impl Harness) {
    let store = outbox.store().await;
    for _ in 0..10 {
        enqueue(&*store, &message("large").json(&noise(10_000))).await;
    }
    let small = enqueue_many(&*store, "small", 3).await;
    let limits: [fn(&mut Take<'_>); 2] = [|take| take.bytes = 35_000, |take| take.rows = 4];
    for limit in limits {
        let batch = take_within(&*store, "worker", &["small", "large"], 5, limit).await;
        let batch = batch.expect("due");
        let taken = ids(&batch);
        assert!(small.iter().all(|id| taken.contains(id)), "{} of another lane", taken.len());
        assert!(taken.len() > small.len(), "the rest of the limits is used");
        let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Released)).collect();
        settle(&*store, batch.token, verdicts, true).await;
    }
}

/// A payload over the relay's limit is not read, and says so.
pub async fn a_payload_over_the_limit_comes_with_a_fault(outbox: &impl Harness) {
    let store = outbox.store().await;
    let large = enqueue(&*store, &message("noop").json(&noise(10_000))).await;
    let small = enqueue(&*store, &message("noop")).await;
    let batch = take_within(&*store, "worker", &["noop"], 10, |take| take.payload_limit = 1_000)
        .await
        .expect("due");
    assert_eq!(ids(&batch), [large, small]);
    assert_eq!(batch.messages[0].fault, Some(ContentFault::TooLarge { limit: 1_000 }));
    assert_eq!(batch.messages[0].message.payload.as_str(), "null");
    assert_eq!(batch.messages[1].fault, None);
}

/// Text of about `bytes` bytes that no database can compress much.
fn noise(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        text.push_str(&Uuid::new_v4().simple().to_string());
    }
    text
}
