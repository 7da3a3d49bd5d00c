//! Settling: what each fate leaves behind.

use super::Harness;
use super::steps::{
    assert_between, assert_nothing_due, assert_same, dead, enqueue, enqueue_many, failed, find,
    in_ms, message, now, rejected, settle, settle_one, take, take_and_settle, take_one, verdict,
};
use crate::eventually;
use chrono::TimeDelta;
use postroom_core::{
    DEAD_EVENT_TYPE, ERROR_TEXT_CHARS, Fate, Fence, Filter, Reconciled, Settled, Settlement,
    StoreErrorKind, announce_dead,
};
use std::time::Duration;

/// SENT is recorded with its time; the rest of the row stands still.
pub async fn sent_is_recorded(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, &id).await;
    let before = now(&*store).await;
    let sent = take_and_settle(&*store, "noop", Fate::Sent).await;
    let after = now(&*store).await;

    let sent_at = sent.sent_at.expect("a time");
    assert_between(before, sent_at, after);
    assert_between(before, sent.updated_at, after);
    expected.status = "SENT".to_owned();
    expected.sent_at = Some(sent_at);
    expected.updated_at = sent.updated_at;
    assert_same(&sent, &expected);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (0, 0));
}

/// Without history, a message leaves at completion, and its neighbours do not.
pub async fn without_history_sent_messages_leave(outbox: &impl Harness) {
    let store = outbox.store_without_history().await;
    enqueue_many(&*store, "noop", 3).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let fates = [Fate::Sent, failed(Duration::ZERO), Fate::Sent];
    let verdicts = batch.messages.iter().zip(fates).map(|(taken, fate)| verdict(taken, fate));
    let settled = settle(&*store, batch.token, verdicts.collect(), true).await;
    assert_eq!(settled, Settled::default());
    let left = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("list");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].message.id, batch.messages[1].message.id);
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (1, 0));
}

/// A failure counts, says why, and is due after its delay by the database's clock.
pub async fn failed_is_recorded(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, &id).await;
    let before = now(&*store).await;
    let record = take_and_settle(&*store, "noop", failed(Duration::from_millis(61_500))).await;
    let after = now(&*store).await;

    let delay = TimeDelta::milliseconds(61_500);
    assert_between(before + delay, record.message.due_at, after + delay);
    assert_between(before, record.updated_at, after);
    expected.status = "FAILED".to_owned();
    expected.message.attempts = 1;
    expected.message.due_at = record.message.due_at;
    expected.last_error = Some("503 from the receiver".to_owned());
    expected.updated_at = record.updated_at;
    assert_same(&record, &expected);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(outbox.claims().await, 0);
}

/// What failed before and is SENT now keeps its last error as history.
pub async fn the_last_error_stays_after_success(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    let sent = take_and_settle(&*store, "noop", Fate::Sent).await;
    assert_eq!((sent.status.as_str(), sent.message.attempts), ("SENT", 1));
    assert_eq!(sent.last_error.as_deref(), Some("503 from the receiver"));
}

/// A dead message is kept, says why, and is not taken again.
pub async fn dead_is_recorded(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut expected = find(&*store, &id).await;
    let record = take_and_settle(&*store, "noop", dead()).await;
    expected.status = "DEAD".to_owned();
    expected.message.attempts = 1;
    expected.last_error = Some("400 from the receiver".to_owned());
    expected.updated_at = record.updated_at;
    assert_same(&record, &expected);
    assert_nothing_due(&*store, "noop").await;
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (1, 0));
}

/// A message that dies without having been tried has no attempt counted.
pub async fn dead_without_an_attempt_counts_none(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let fate = Fate::Dead { error: "over the limit".to_owned(), tried: None, announcement: None };
    let record = take_and_settle(&*store, "noop", fate).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("DEAD", 0));
}

/// A released message is as if it had never been taken.
pub async fn released_is_untouched(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let before = find(&*store, &id).await;
    let after = take_and_settle(&*store, "noop", Fate::Released).await;
    assert_same(&after, &before);
    assert_eq!(outbox.claims().await, 0);
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.rescues), (id, 0));
}

/// A postponed message is due later by the database's clock, and else as if it had never been taken.
pub async fn postponed_is_due_later_and_else_untouched(outbox: &impl Harness) {
    let store = outbox.store().await;
    let fresh = enqueue(&*store, &message("noop")).await;
    let tried = enqueue(&*store, &message("other")).await;
    take_and_settle(&*store, "other", failed(Duration::ZERO)).await;
    for (id, lane) in [(fresh.clone(), "noop"), (tried, "other")] {
        let mut expected = find(&*store, &id).await;
        let history = store.attempts(&id).await.expect("attempts").len();
        // More than once: each time counts from then.
        for delay in [Duration::ZERO, Duration::from_millis(61_500)] {
            let before = now(&*store).await;
            let (token, taken) = take_one(&*store, "worker", lane).await;
            assert_eq!((&taken.message.id, taken.rescues, taken.dispatch), (&id, 0, 1));
            let settled = settle_one(&*store, token, &taken, Fate::Postponed { delay }).await;
            assert_eq!(settled, Settled::default());
            let record = find(&*store, &id).await;
            let after = now(&*store).await;
            assert_between(before + delay, record.message.due_at, after + delay);
            assert_between(before, record.updated_at, after);
            expected.message.due_at = record.message.due_at;
            expected.updated_at = record.updated_at;
            assert_same(&record, &expected);
        }
        assert_eq!(store.attempts(&id).await.expect("attempts").len(), history);
        assert_nothing_due(&*store, lane).await;
    }
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (2, 0));
    // Both tables say so.
    assert_eq!(store.reconcile().await.expect("reconcile"), Reconciled::default());
    // Brought forward by hand, like anything that waits.
    outbox.set_due_at(&fresh, in_ms(now(&*store).await) - TimeDelta::hours(1)).await;
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, fresh);
}

/// What is postponed together goes by its delays afterwards.
pub async fn postponed_messages_go_by_their_delays(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 4).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let delays = [40, 20, 30].map(Duration::from_millis);
    let mut verdicts: Vec<_> = batch
        .messages
        .iter()
        .zip(delays)
        .map(|(taken, delay)| verdict(taken, Fate::Postponed { delay }))
        .collect();
    verdicts.push(verdict(&batch.messages[3], Fate::Sent));
    assert_eq!(settle(&*store, batch.token, verdicts, true).await, Settled::default());
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (3, 0));
    let mut taken = Vec::new();
    eventually("all to be due", Duration::from_secs(60), async || {
        if let Some(batch) = take(&*store, "worker", &["noop"], 10).await {
            taken.extend(batch.messages.into_iter().map(|taken| taken.message.id));
        }
        (taken.len() == 3).then_some(())
    })
    .await;
    assert_eq!(taken, [all[1].clone(), all[2].clone(), all[0].clone()]);
}

/// A batch that is settled in part keeps its claim on the rest.
pub async fn a_batch_is_settled_in_parts(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 4).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let [a, b, c, d] = &batch.messages[..] else { panic!("four messages") };
    let first = vec![verdict(a, Fate::Sent), verdict(b, failed(Duration::from_secs(60)))];
    assert_eq!(settle(&*store, batch.token, first, false).await, Settled::default());
    let mut statuses = Vec::new();
    for id in &all {
        statuses.push(find(&*store, id).await.status);
    }
    assert_eq!(statuses, ["SENT", "FAILED", "CLAIMED", "CLAIMED"]);
    assert_eq!(outbox.claims().await, 1);

    let rest = vec![verdict(c, dead()), verdict(d, Fate::Released)];
    assert_eq!(settle(&*store, batch.token, rest, true).await, Settled::default());
    assert_eq!(find(&*store, &all[2]).await.status, "DEAD");
    assert_eq!(find(&*store, &all[3]).await.status, "PENDING");
    assert_eq!(outbox.claims().await, 0);
}

/// A claim stays while something is held under it, whatever the relay believes: a database that
/// crashed can have forgotten what was recorded.
pub async fn fault_05_a_claim_that_holds_something_is_not_removed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 2).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let last = vec![verdict(&batch.messages[1], Fate::Sent)];
    assert_eq!(settle(&*store, batch.token, last, true).await, Settled::default());
    assert_eq!(outbox.claims().await, 1);
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(find(&*store, &all[0]).await.status, "PENDING");
    assert_eq!(find(&*store, &all[1]).await.status, "SENT");
    assert_eq!(outbox.claims().await, 0);
}

/// One call settles several batches, each by its own token.
pub async fn several_batches_are_settled_at_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 3).await;
    let (first, one) = take_one(&*store, "worker", "noop").await;
    let (second, two) = take_one(&*store, "worker", "noop").await;
    let (_, three) = take_one(&*store, "worker", "noop").await;
    let settlements = [
        Settlement {
            fence: Fence::Claim(first),
            verdicts: vec![verdict(&one, Fate::Sent)],
            finished: true,
        },
        // The third message is held under another token.
        Settlement {
            fence: Fence::Claim(second),
            verdicts: vec![verdict(&two, dead()), verdict(&three, dead())],
            finished: true,
        },
    ];
    let settled = store.settle(&settlements).await.expect("settle");
    assert_eq!(settled.late, [three.message.seq]);
    assert_eq!(find(&*store, &three.message.id).await.status, "CLAIMED");
    assert_eq!(find(&*store, &one.message.id).await.status, "SENT");
    assert_eq!(find(&*store, &two.message.id).await.status, "DEAD");
    assert_eq!(store.settle(&[]).await.expect("settle"), Settled::default());
}

/// The announcement of a death is enqueued with it.
pub async fn a_death_is_announced_with_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop").tenant("acme")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    let announcement = announce_dead(&taken.message, "400", 1, "kafka:dead");
    let fate = Fate::Dead {
        error: "400".to_owned(),
        tried: Some(rejected()),
        announcement: Some(Box::new(announcement)),
    };
    settle_one(&*store, token, &taken, fate).await;
    assert_eq!(find(&*store, &id).await.status, "DEAD");
    let (_, told) = take_one(&*store, "worker", "kafka:dead").await;
    assert_eq!(told.message.event_type, DEAD_EVENT_TYPE);
    assert_eq!(told.message.causation_id.as_ref(), Some(&taken.message.event_id));
    assert!(told.message.payload.as_str().contains(&id.to_string()));
}

/// A settlement that cannot be applied whole is not applied at all.
pub async fn a_refused_announcement_undoes_its_settlement(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 2).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let fate = Fate::Dead {
        error: "400".to_owned(),
        tried: Some(rejected()),
        announcement: Some(Box::new(message(&"x".repeat(121)))),
    };
    let verdicts = vec![verdict(&batch.messages[0], Fate::Sent), verdict(&batch.messages[1], fate)];
    let settlement = Settlement { fence: Fence::Claim(batch.token), verdicts, finished: true };
    let error = store.settle(&[settlement]).await.expect_err("must be refused");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    for taken in &batch.messages {
        assert_eq!(find(&*store, &taken.message.id).await.status, "CLAIMED");
    }
    assert_eq!((outbox.deliveries().await, outbox.claims().await), (2, 1));
}

/// An error text is cut by characters, and NUL is left out.
pub async fn an_error_text_is_clipped(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [
        Fate::Failed {
            delay: Duration::ZERO,
            error: format!("\0{}", "é".repeat(6_000)),
            took: Duration::from_millis(12),
        },
        Fate::Dead { error: "é".repeat(6_000), tried: Some(rejected()), announcement: None },
    ] {
        enqueue(&*store, &message("noop")).await;
        let record = take_and_settle(&*store, "noop", fate).await;
        assert_eq!(record.last_error, Some("é".repeat(ERROR_TEXT_CHARS)));
        outbox.delete(&record.message.id).await;
    }
}
