//! Messages that are handed over to a queue: numbered dispatches, settled by whoever delivered.

use super::Harness;
use super::steps::{
    assert_nothing_due, assert_same, begin, dead, enqueue, enqueue_many, failed, find, message,
    number, rejected, settle, settle_dispatch, take, take_for_queue, take_one, take_rescued,
    take_within, verdict, wish,
};
use postroom_core::{
    Dispatched, Fate, Fence, Key, Operation, Quota, Rescued, Settled, Settlement, Take, Token,
    Verdict, announce_dead,
};
use std::time::Duration;

/// The number of the job is known without a write: a crash on the way leads to the same job.
pub async fn the_first_dispatch_costs_no_write(outbox: &impl Harness) {
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 2).await;
    assert_eq!(number(&*store, &ids[0]).await, Some(1));
    let batch = take_for_queue(&*store, "noop", 10).await;
    assert_eq!(batch.messages.iter().map(|taken| taken.dispatch).collect::<Vec<_>>(), [1, 1]);
    let mut dispatched = store.dispatched(&ids).await.expect("dispatched");
    dispatched.sort_by_key(|one| one.message.seq);
    for (dispatched, taken) in dispatched.iter().zip(&batch.messages) {
        assert_eq!(dispatched.number, 1);
        assert_eq!(dispatched.message, taken.message);
    }
    assert_eq!(dispatched.len(), 2);
}

/// Whoever delivered says so, whether a relay holds the message, or nobody.
pub async fn a_word_by_number_needs_no_claim(outbox: &impl Harness) {
    let (store, elsewhere) = (outbox.store().await, outbox.store().await);
    enqueue_many(&*store, "noop", 2).await;
    let batch = take_for_queue(&*store, "noop", 2).await;
    let [held, free] = &batch.messages[..] else { panic!("two messages") };
    settle(&*store, batch.token, vec![verdict(free, Fate::Released)], false).await;
    for taken in [held, free] {
        let settled = settle_dispatch(&*elsewhere, 1, &taken.message, Fate::Sent).await;
        assert_eq!(settled, Settled::default());
        let record = find(&*store, &taken.message.id).await;
        assert_eq!(record.status, "SENT");
        assert!(record.sent_at.is_some());
    }
    assert_eq!(outbox.deliveries().await, 0);
    assert_nothing_due(&*store, "noop").await;
}

/// A failure is recorded as ever, and the next job has another number.
pub async fn a_failed_dispatch_is_over(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    for round in 1..=3 {
        let batch = take_for_queue(&*store, "noop", 1).await;
        assert_eq!(batch.messages[0].dispatch, round);
        let message = &batch.messages[0].message;
        let settled = settle_dispatch(&*store, round, message, failed(Duration::ZERO)).await;
        assert_eq!(settled, Settled::default());
        let record = find(&*store, &id).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("FAILED", round));
        assert_eq!(record.last_error.as_deref(), Some("503 from the receiver"));
        assert_eq!(number(&*store, &id).await, Some(round + 1));
    }
    assert_eq!(store.attempts(&id).await.expect("attempts").len(), 3);
}

/// A job that was lost without a word is no attempt; the message is due at once, under another
/// number, so that a word of the lost one changes nothing.
pub async fn a_dispatch_whose_job_is_gone_is_over(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let before = find(&*store, &id).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    let settled = settle_dispatch(&*store, 1, message, Fate::Released).await;
    assert_eq!(settled, Settled::default());
    assert_same(&find(&*store, &id).await, &before);
    assert_eq!(settle_dispatch(&*store, 1, message, Fate::Sent).await.late, [message.seq]);
    assert_eq!(take_for_queue(&*store, "noop", 1).await.messages[0].dispatch, 2);
}

/// A message that is brought back from the dead is not taken for the job that killed it.
pub async fn a_dead_dispatch_is_over(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    assert_eq!(settle_dispatch(&*store, 1, message, dead()).await, Settled::default());
    let record = find(&*store, &id).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("DEAD", 1));
    assert_eq!(number(&*store, &id).await, None);
    let action = begin(&*store, Operation::Redrive).await;
    assert_eq!(store.redrive(action, &[record.key()]).await.expect("redrive"), 1);
    assert_eq!(number(&*store, &id).await, Some(2));
}

/// The word on a dispatch that is over, or has not begun, changes no row.
pub async fn a_stale_word_changes_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    settle_dispatch(&*store, 1, &batch.messages[0].message, failed(Duration::ZERO)).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let before = find(&*store, &id).await;
    let message = &batch.messages[0].message;
    for stale in [0, 1, 3, u32::MAX] {
        let postponed = Fate::Postponed { delay: Duration::ZERO };
        for fate in [Fate::Sent, failed(Duration::ZERO), dead(), Fate::Released, postponed] {
            let settled = settle_dispatch(&*store, stale, message, fate).await;
            assert_eq!(settled.late, [message.seq]);
            assert_same(&find(&*store, &id).await, &before);
        }
    }
    assert_eq!(number(&*store, &id).await, Some(2));
    // Nor does it once the message is SENT.
    settle_dispatch(&*store, 2, message, Fate::Sent).await;
    let sent = find(&*store, &id).await;
    let late = settle_dispatch(&*store, 2, message, failed(Duration::ZERO)).await;
    assert_eq!(late.late, [message.seq]);
    assert_same(&find(&*store, &id).await, &sent);
}

/// A settlement whose outcome was unknown is repeated: it is not late, and happens once.
pub async fn a_repeated_word_happens_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 3).await;
    let batch = take_for_queue(&*store, "noop", 3).await;
    let [a, b, c] = &batch.messages[..] else { panic!("three messages") };
    let settlement = Settlement {
        fence: Fence::Dispatch { number: 1, token: Token::random(), failed_before: None },
        verdicts: vec![
            verdict(a, Fate::Sent),
            verdict(b, failed(Duration::from_secs(60))),
            verdict(c, dead()),
        ],
        finished: false,
    };
    for _ in 0..2 {
        let settled = store.settle(std::slice::from_ref(&settlement)).await.expect("settle");
        assert_eq!(settled, Settled::default());
    }
    let attempts = [a, b, c].map(|taken| taken.message.id.clone());
    for (id, expected) in attempts.into_iter().zip([0, 1, 1]) {
        assert_eq!(find(&*store, &id).await.message.attempts, expected);
        assert_eq!(store.attempts(&id).await.expect("attempts").len() as u32, expected);
    }
    assert_eq!(number(&*store, &b.message.id).await, Some(2));
}

/// Dispatches of several numbers are settled in one call, and those that are late are named.
pub async fn several_numbers_are_settled_at_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 3).await;
    let batch = take_for_queue(&*store, "noop", 3).await;
    let [a, b, c] = &batch.messages[..] else { panic!("three messages") };
    settle_dispatch(&*store, 1, &b.message, failed(Duration::ZERO)).await;
    let settlement = |number, verdicts: Vec<Verdict>| Settlement {
        fence: Fence::Dispatch { number, token: Token::random(), failed_before: None },
        verdicts,
        finished: false,
    };
    let settlements = [
        settlement(1, vec![verdict(a, Fate::Sent)]),
        settlement(2, vec![verdict(b, Fate::Sent), verdict(c, Fate::Sent)]),
    ];
    let settled = store.settle(&settlements).await.expect("settle");
    assert_eq!(settled.late, [c.message.seq]);
    for (id, status) in ids.into_iter().zip(["SENT", "SENT", "CLAIMED"]) {
        assert_eq!(find(&*store, &id).await.status, status);
    }
}

/// A death is announced with it, and one that comes late is not.
pub async fn a_death_by_number_is_announced(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    let death = || Fate::Dead {
        error: "400".to_owned(),
        tried: Some(rejected()),
        announcement: Some(Box::new(announce_dead(message, "400", 1, "kafka:dead"))),
    };
    assert_eq!(settle_dispatch(&*store, 2, message, death()).await.late, [message.seq]);
    assert!(take(&*store, "worker", &["kafka:dead"], 10).await.is_none());
    assert_eq!(settle_dispatch(&*store, 1, message, death()).await, Settled::default());
    assert_eq!(take_one(&*store, "worker", "kafka:dead").await.1.message.attempts, 0);
}

/// Where no history is kept, the row goes with its delivery.
pub async fn without_history_a_dispatched_message_leaves(outbox: &impl Harness) {
    let store = outbox.store_without_history().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    settle_dispatch(&*store, 1, message, failed(Duration::ZERO)).await;
    assert_eq!(settle_dispatch(&*store, 2, message, Fate::Sent).await, Settled::default());
    assert!(store.find(&id).await.expect("find").is_none());
    assert_eq!((outbox.deliveries().await, outbox.attempts().await), (0, 0));
}

/// A relay that stops lets go of its messages, and their jobs go on.
pub async fn a_release_by_its_claim_keeps_the_number(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let released = vec![verdict(&batch.messages[0], Fate::Released)];
    assert_eq!(settle(&*store, batch.token, released, true).await, Settled::default());
    assert_eq!(number(&*store, &id).await, Some(1));
}

/// What a queue has no room for was not handed over: its number stays. The word on a dispatch ends
/// it, whatever it is.
pub async fn a_postponed_message_keeps_its_number_unless_its_dispatch_is_over(
    outbox: &impl Harness,
) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let verdicts = vec![verdict(&batch.messages[0], Fate::Postponed { delay: Duration::ZERO })];
    assert_eq!(settle(&*store, batch.token, verdicts, true).await, Settled::default());
    assert_eq!((number(&*store, &id).await, outbox.claims().await), (Some(1), 0));

    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    let later = Fate::Postponed { delay: Duration::from_secs(60) };
    assert_eq!(settle_dispatch(&*store, 1, message, later).await, Settled::default());
    assert_eq!(number(&*store, &id).await, Some(2));
    let record = find(&*store, &id).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("PENDING", 0));
    assert_nothing_due(&*store, "noop").await;
}

/// What was handed over cannot have killed its relay: it is taken again like any other.
pub async fn a_dispatched_claim_that_is_lost_is_no_rescue(outbox: &impl Harness) {
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 3).await;
    for _ in 0..3 {
        take_for_queue(&*store, "noop", 10).await;
        outbox.expire_claims().await;
        assert_eq!(store.rescue(10).await.expect("rescue"), 3);
    }
    assert_eq!(outbox.claims().await, 0);
    let again = take_for_queue(&*store, "noop", 10).await;
    assert_eq!(again.messages.len(), 3);
    for taken in &again.messages {
        assert_eq!((taken.rescues, taken.dispatch, taken.message.attempts), (0, 1, 0));
    }
    assert_eq!(number(&*store, &ids[0]).await, Some(1));
}

/// What another relay lost is handed over all the same, and losing it then counts for nothing.
pub async fn a_rescued_message_that_is_dispatched_is_no_suspect(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let quotas = [Quota { integration: "noop".to_owned(), rows: 10 }];
    let take = Take { for_queue: true, ..wish(&*store, "dispatcher", &quotas).await };
    assert_eq!(store.take_rescued(&take, Rescued::Together).await.expect("take").len(), 1);
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let record = find(&*store, &id).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("PENDING", 0));
    let rescued = take_rescued(&*store, "worker", &["noop"]).await;
    assert_eq!(rescued[0].messages[0].rescues, 1);
}

/// A relay whose messages were all settled by others gives up its claim.
pub async fn a_claim_ends_when_its_messages_were_settled_elsewhere(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 2).await;
    let batch = take_for_queue(&*store, "noop", 2).await;
    settle_dispatch(&*store, 1, &batch.messages[0].message, Fate::Sent).await;
    settle(&*store, batch.token, Vec::new(), true).await;
    assert_eq!(outbox.claims().await, 1, "it still holds a message");
    settle_dispatch(&*store, 1, &batch.messages[1].message, failed(Duration::ZERO)).await;
    settle(&*store, batch.token, Vec::new(), true).await;
    assert_eq!(outbox.claims().await, 0);
}

/// For what is SENT, DEAD, unknown or closed by hand, nothing is to be delivered.
pub async fn what_is_closed_is_not_dispatched(outbox: &impl Harness) {
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 4).await;
    let batch = take_for_queue(&*store, "noop", 3).await;
    settle_dispatch(&*store, 1, &batch.messages[0].message, Fate::Sent).await;
    settle_dispatch(&*store, 1, &batch.messages[1].message, dead()).await;
    outbox.set_status(&ids[2], "DEAD").await.expect("set by hand");
    let mut asked = ids.clone();
    asked.push(Token::random().0.into());
    let mut dispatched = store.dispatched(&asked).await.expect("dispatched");
    dispatched.retain(Dispatched::is_open);
    assert_eq!(
        dispatched.iter().map(|one| one.message.id.clone()).collect::<Vec<_>>(),
        [ids[3].clone()]
    );
    assert!(store.dispatched(&[]).await.expect("dispatched").is_empty());
}

/// A message that was cancelled stays so, whatever a job of it says.
pub async fn a_word_on_a_cancelled_message_changes_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let record = find(&*store, &id).await;
    let action = begin(&*store, Operation::Cancel).await;
    let key = Key { seq: record.message.seq, id: id.clone() };
    assert_eq!(store.cancel(action, &[key]).await.expect("cancel"), 1);
    let cancelled = find(&*store, &id).await;
    for fate in [Fate::Sent, failed(Duration::ZERO), Fate::Released] {
        let settled = settle_dispatch(&*store, 1, &record.message, fate).await;
        assert_eq!(settled.late, [record.message.seq]);
        assert_same(&find(&*store, &id).await, &cancelled);
    }
}

/// A change by hand begins no numbering anew: the job of before may still be there.
pub async fn set_back_to_pending_it_keeps_its_number(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let later = failed(Duration::from_secs(600));
    settle_dispatch(&*store, 1, &batch.messages[0].message, later).await;
    outbox.set_status(&id, "PENDING").await.expect("set by hand");
    assert_eq!(number(&*store, &id).await, Some(2));
    assert!(take_within(&*store, "worker", &["elsewhere"], 1, |_| {}).await.is_none());
}

/// A message that was SENT begins a second life: no job of its first one is a word on it, whatever
/// is still kept or said of it.
pub async fn set_back_after_it_was_sent_it_has_a_number_of_its_own(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    settle_dispatch(&*store, 1, message, failed(Duration::ZERO)).await;
    take_for_queue(&*store, "noop", 1).await;
    assert_eq!(settle_dispatch(&*store, 2, message, Fate::Sent).await, Settled::default());
    outbox.set_status(&id, "PENDING").await.expect("set by hand");
    let second = number(&*store, &id).await.expect("it is open");
    // So many dispatches cannot have been.
    assert!(second > 1_000_000, "{second}");
    for stale in [1, 2, 3] {
        assert_eq!(settle_dispatch(&*store, stale, message, Fate::Sent).await.late, [message.seq]);
    }
    assert_eq!(find(&*store, &id).await.status, "PENDING");
    let batch = take_for_queue(&*store, "noop", 1).await;
    assert_eq!(batch.messages[0].dispatch, second);
    settle_dispatch(&*store, second, message, failed(Duration::ZERO)).await;
    assert_eq!(number(&*store, &id).await, Some(second + 1));
    assert_eq!(settle_dispatch(&*store, second + 1, message, Fate::Sent).await, Settled::default());
    assert_eq!(find(&*store, &id).await.status, "SENT");
}

/// With a delivery its number is lost: one that is made again has a number of its own.
pub async fn a_delivery_that_is_made_again_has_a_number_of_its_own(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    settle_dispatch(&*store, 1, message, failed(Duration::ZERO)).await;
    outbox.delete_deliveries().await;
    assert_eq!(store.reconcile().await.expect("reconcile").made, 1);
    let again = number(&*store, &id).await.expect("it is open");
    assert!(again > 1_000_000, "{again}");
    assert_eq!(settle_dispatch(&*store, 2, message, Fate::Sent).await.late, [message.seq]);
    assert_eq!(take_for_queue(&*store, "noop", 1).await.messages[0].dispatch, again);
}
