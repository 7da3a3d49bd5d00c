//! Which message is which: a number may come again, an id does not.

use super::steps::{
    assert_nothing_due, begin, dead, enqueue, enqueue_many, failed, find, ids, message, settle,
    settle_dispatch, settle_one, take, take_and_settle, take_batches, take_for_queue, take_one,
    take_rescued, verdict,
};
use super::{Harness, PlainRow};
use postroom_core::{Fate, Filter, MessageId, Operation, Store};
use std::collections::HashSet;
use std::slice;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// Enqueues as many messages as there were before the numbers began again, and makes sure that they
/// have the same numbers.
async fn enqueue_again(store: &dyn Store, lane: &str, old: &[i64]) -> Vec<MessageId> {
    let new = enqueue_many(store, lane, old.len()).await;
    for (id, seq) in new.iter().zip(old) {
        assert_eq!(find(store, id).await.message.seq, *seq, "numbers begin again");
    }
    new
}

/// Every outcome of the old attempt is late, and the new messages wait as if it had never been.
pub async fn fault_45_an_attempt_under_way_marks_no_new_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 5).await;
    let old = take(&*store, "worker", &["noop"], 5).await.expect("due");
    outbox.truncate().await;
    let seqs: Vec<i64> = old.messages.iter().map(|taken| taken.message.seq).collect();
    let new = enqueue_again(&*store, "noop", &seqs).await;

    let fates = [Fate::Sent, failed(HOUR), dead(), Fate::Released, Fate::Postponed { delay: HOUR }];
    let verdicts = old.messages.iter().zip(fates).map(|(taken, fate)| verdict(taken, fate));
    let mut late = settle(&*store, old.token, verdicts.collect(), true).await.late;
    late.sort_unstable();
    assert_eq!(late, seqs);
    for id in &new {
        let record = find(&*store, id).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("PENDING", 0));
        assert_eq!(store.attempts(id).await.expect("attempts"), []);
    }
    assert_eq!(ids(&take(&*store, "worker", &["noop"], 10).await.expect("due")), new);
}

/// Where SENT messages leave at once, the new ones stay.
pub async fn fault_45_an_attempt_under_way_deletes_no_new_message(outbox: &impl Harness) {
    let store = outbox.store_without_history().await;
    enqueue(&*store, &message("noop")).await;
    let (token, old) = take_one(&*store, "worker", "noop").await;
    outbox.truncate().await;
    let new = enqueue_again(&*store, "noop", &[old.message.seq]).await;
    settle_one(&*store, token, &old, Fate::Sent).await;
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, new[0]);
}

/// A row that nobody delivers is nobody's to mark.
pub async fn fault_45_an_attempt_under_way_leaves_an_unknown_status_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let (token, old) = take_one(&*store, "worker", "noop").await;
    outbox.truncate().await;
    let id = outbox.insert(&PlainRow::new("noop").with("status", "ON_HOLD")).await.expect("row");
    assert_eq!(find(&*store, &id).await.message.seq, old.message.seq);
    settle_one(&*store, token, &old, Fate::Sent).await;
    assert_eq!(find(&*store, &id).await.status, "ON_HOLD");
}

/// Deliveries that were dead, put off, rescued or held stay behind; the new messages are taken at
/// once, and one reconciliation finds everything in order.
pub async fn fault_45_old_deliveries_hide_no_new_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut old = Vec::new();
    enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let rescued = take_rescued(&*store, "worker", &["noop"]).await.remove(0);
    old.push(rescued.messages[0].message.seq);
    settle_one(&*store, rescued.token, &rescued.messages[0], Fate::Released).await;
    for fate in [dead(), failed(HOUR), Fate::Postponed { delay: HOUR }] {
        enqueue(&*store, &message("other")).await;
        old.push(take_and_settle(&*store, "other", fate).await.message.seq);
    }
    enqueue(&*store, &message("other")).await;
    old.push(take_one(&*store, "worker", "other").await.1.message.seq);

    outbox.truncate().await;
    let new = enqueue_again(&*store, "third", &old).await;
    for id in &new {
        assert_eq!(find(&*store, id).await.status, "PENDING");
    }
    let batch = take(&*store, "worker", &["third"], 10).await.expect("due");
    assert_eq!(ids(&batch), new);
    assert!(batch.messages.iter().all(|taken| taken.rescues == 0));
    let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
    assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
    store.reconcile().await.expect("reconcile");
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    for lane in ["noop", "other", "third"] {
        assert_nothing_due(&*store, lane).await;
    }
}

/// A job names its message by id, whatever number that had.
pub async fn fault_45_a_stale_job_settles_no_new_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [Fate::Sent, failed(HOUR), dead(), Fate::Released, Fate::Postponed { delay: HOUR }]
    {
        enqueue(&*store, &message("noop")).await;
        let old = take_for_queue(&*store, "noop", 1).await.messages.remove(0);
        outbox.truncate().await;
        let new = enqueue_again(&*store, "noop", &[old.message.seq]).await;
        let taken = take_for_queue(&*store, "noop", 1).await.messages.remove(0);
        assert_eq!(taken.dispatch, old.dispatch, "the first of both");
        let settled = settle_dispatch(&*store, old.dispatch, &old.message, fate).await;
        assert_eq!(settled.late, [old.message.seq]);
        let record = find(&*store, &new[0]).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("CLAIMED", 0));
        let settled = settle_dispatch(&*store, taken.dispatch, &taken.message, Fate::Sent).await;
        assert!(settled.late.is_empty());
        outbox.truncate().await;
    }
}

/// A claim that expires rescues nothing of the new messages, and counts no attempt of theirs.
pub async fn fault_45_an_old_claim_that_expires_concerns_no_new_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    // Held alone: losing it again would count as an attempt.
    let old = take_rescued(&*store, "dying", &["noop"]).await.remove(0);
    outbox.truncate().await;
    let new = enqueue_again(&*store, "noop", &[old.messages[0].message.seq]).await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.rescues, taken.message.attempts), (new[0].clone(), 0, 0));
}

/// What was tried before is not the new message's history.
pub async fn fault_45_attempts_of_an_old_message_are_not_a_new_ones(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    for _ in 0..2 {
        take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    }
    let old = take_and_settle(&*store, "noop", Fate::Sent).await;
    outbox.truncate().await;
    let new = enqueue_again(&*store, "noop", &[old.message.seq]).await;
    assert_eq!(store.attempts(&new[0]).await.expect("attempts"), []);
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    assert_eq!(store.attempts(&new[0]).await.expect("attempts").len(), 1);
    // Those of the old one are swept in time.
    store.prune(HOUR, 100).await.expect("prune");
    assert_eq!(outbox.attempts().await, 1);
}

/// An operator acts on what was listed: a message that took its number meanwhile is another.
pub async fn fault_45_an_operator_changes_no_new_message_by_an_old_key(outbox: &impl Harness) {
    let store = outbox.store().await;
    let old = enqueue(&*store, &message("noop")).await;
    let key = find(&*store, &old).await.key();
    outbox.truncate().await;
    let new = &enqueue_again(&*store, "noop", &[key.seq]).await[0];

    let action = begin(&*store, Operation::Cancel).await;
    assert_eq!(store.cancel(action, slice::from_ref(&key)).await.expect("cancel"), 0);
    assert_eq!(find(&*store, new).await.status, "PENDING");
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!(store.release(action, slice::from_ref(&key)).await.expect("release"), 0);
    assert!(settle_one(&*store, token, &taken, dead()).await.late.is_empty());
    assert_eq!(store.redrive(action, slice::from_ref(&key)).await.expect("redrive"), 0);
    assert_eq!(find(&*store, new).await.status, "DEAD");
    outbox.set_status(new, "SENT").await.expect("set by hand");
    assert!(store.replay(action, &[key], false).await.expect("replay").is_empty());
}

/// New messages are kept, or refused with an error that a producer sees; none is skipped as if it
/// were a duplicate. One reconciliation mends the rest.
pub async fn fault_46_numbers_left_behind_lose_no_message(outbox: &impl Harness) {
    const NEW: usize = 50;
    let store = outbox.store().await;
    enqueue_many(&*store, "old", 30).await;
    for fate in [Fate::Sent, dead()] {
        let batch = take(&*store, "worker", &["old"], 10).await.expect("due");
        let verdicts = batch.messages.iter().map(|taken| verdict(taken, fate.clone())).collect();
        assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
    }
    outbox.restart_numbers().await;

    for n in 0..NEW {
        let row = PlainRow::new("noop").with("source_event_id", &format!("new-{n}"));
        let mut refusals = 0;
        while let Err(refusal) = outbox.insert_or_skip(&row).await {
            refusals += 1;
            assert!(refusals < 100, "refused again and again: {refusal}");
        }
    }
    store.reconcile().await.expect("reconcile");
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let all = store.list(&Filter { limit: 1_000, ..Filter::default() }).await.expect("list");
    assert_eq!(all.len(), 30 + NEW);
    let numbers: HashSet<i64> = all.iter().map(|record| record.message.seq).collect();
    assert_eq!(numbers.len(), all.len(), "each has a number of its own");
    for (lane, waiting) in [("old", 10), ("noop", NEW)] {
        let batches = take_batches(&*store, "worker", &[lane], 100, |_| {}).await;
        let taken: usize = batches.iter().map(|batch| batch.messages.len()).sum();
        assert_eq!(taken, waiting, "{lane}");
        for batch in batches {
            let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
            assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
        }
    }
}
