//! Messages whose worker writes to their rows by itself while their job is in a queue.

use super::steps::{
    assert_nothing_due, enqueue, failed, find, message, number, rejected, settle, settle_dispatch,
    take_for_queue, verdict,
};
use super::{Harness, PlainRow};
use postroom_core::{
    Dispatched, Fate, Fence, Message, MessageId, Settled, Settlement, Status, Store, Token, Verdict,
};
use std::slice;
use std::time::Duration;

async fn dispatched(store: &dyn Store, id: &MessageId) -> Option<Dispatched> {
    store.dispatched(slice::from_ref(id)).await.expect("dispatched").pop()
}

/// Whoever hears of the job's end reads what its worker wrote, and can settle it at once.
pub async fn what_a_worker_marked_is_read_and_settled(outbox: &impl Harness) {
    let store = outbox.store().await;
    let dead = Fate::Dead { error: "400".to_owned(), tried: Some(rejected()), announcement: None };
    for (marked, fate, deliveries) in [
        (Status::Sent, Fate::Sent, 0),
        (Status::Failed, failed(Duration::from_secs(60)), 1),
        (Status::Dead, dead, 1),
    ] {
        let id = enqueue(&*store, &message("noop")).await;
        let batch = take_for_queue(&*store, "noop", 1).await;
        outbox.set_status(&id, marked.as_str()).await.expect("marked");
        let read = dispatched(&*store, &id).await.expect("its dispatch is not over");
        assert_eq!((read.number, read.status), (1, marked));
        let settled = settle_dispatch(&*store, 1, &batch.messages[0].message, fate).await;
        assert_eq!(settled, Settled::default());
        assert_eq!(find(&*store, &id).await.status, marked.as_str());
        assert_eq!(outbox.deliveries().await, deliveries);
        assert_nothing_due(&*store, "noop").await;
        settle(&*store, batch.token, Vec::new(), true).await;
        assert_eq!(outbox.claims().await, 0, "nothing is left to be rescued");
        outbox.delete(&id).await;
        outbox.delete_deliveries().await;
    }
}

/// The last error is told with the status.
pub async fn the_error_of_a_failed_message_is_read(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    assert_eq!(dispatched(&*store, &id).await.expect("open").last_error, None);
    let batch = take_for_queue(&*store, "noop", 1).await;
    settle_dispatch(&*store, 1, &batch.messages[0].message, failed(Duration::ZERO)).await;
    let read = dispatched(&*store, &id).await.expect("open");
    assert_eq!(read.status, Status::Failed);
    assert_eq!(read.last_error.as_deref(), Some("503 from the receiver"));
}

/// An attempt that the worker has counted in the row is not counted a second time, and one that it
/// has not is.
pub async fn an_attempt_that_its_worker_counted_is_counted_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    for (in_row, failed_before, expected) in
        [(0, Some(0), 1), (1, Some(0), 1), (2, Some(1), 2), (0, Some(4), 5), (3, None, 4)]
    {
        for is_dead in [false, true] {
            let row = PlainRow::new("noop").with("attempts", &in_row.to_string());
            let id = outbox.insert(&row).await.expect("a row");
            let batch = take_for_queue(&*store, "noop", 1).await;
            let fate = if is_dead {
                let (error, tried) = ("400".to_owned(), Some(rejected()));
                Fate::Dead { error, tried, announcement: None }
            } else {
                failed(Duration::from_secs(60))
            };
            let message = &batch.messages[0].message;
            let settled = settle_counted(&*store, message, failed_before, fate).await;
            assert_eq!(settled, Settled::default());
            let attempts = find(&*store, &id).await.message.attempts;
            assert_eq!(attempts, expected, "{in_row} in the row, {failed_before:?} before");
            assert_eq!(store.attempts(&id).await.expect("attempts").len(), 1);
        }
    }
}

async fn settle_counted(
    store: &dyn Store,
    message: &Message,
    failed_before: Option<u32>,
    fate: Fate,
) -> Settled {
    let fence = Fence::Dispatch { number: 1, token: Token::random(), failed_before };
    let verdicts = vec![Verdict { seq: message.seq, id: message.id.clone(), fate }];
    store.settle(&[Settlement { fence, verdicts, finished: false }]).await.expect("settle")
}

/// Before its next job is added, a failed message says PENDING: whoever marks it FAILED then says so
/// of this job. All else stays, and it can be given back or put off like any other.
pub async fn a_failed_message_is_reopened_before_its_next_dispatch(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [Fate::Released, Fate::Postponed { delay: Duration::ZERO }] {
        let id = enqueue(&*store, &message("noop")).await;
        let batch = take_for_queue(&*store, "noop", 1).await;
        let seq = batch.messages[0].message.seq;
        settle_dispatch(&*store, 1, &batch.messages[0].message, failed(Duration::ZERO)).await;
        let batch = take_for_queue(&*store, "noop", 1).await;
        let taken = &batch.messages[0];
        for _ in 0..2 {
            let locked = store.reopen(batch.token, &[seq]).await.expect("reopen");
            assert!(locked.is_empty());
            let read = dispatched(&*store, &id).await.expect("open");
            assert_eq!((read.number, read.status, read.message.attempts), (2, Status::Pending, 1));
            assert_eq!(read.last_error.as_deref(), Some("503 from the receiver"));
            assert_eq!(read.message.due_at, taken.message.due_at);
        }
        assert_eq!(find(&*store, &id).await.status, "CLAIMED");
        let released = settle(&*store, batch.token, vec![verdict(taken, fate)], true).await;
        assert_eq!(released, Settled::default());
        assert_eq!(find(&*store, &id).await.status, "PENDING");
        let again = take_for_queue(&*store, "noop", 1).await;
        assert_eq!((again.messages[0].message.id.clone(), again.messages[0].dispatch), (id, 2));
        assert_eq!(settle_dispatch(&*store, 2, &taken.message, Fate::Sent).await.late, [0; 0]);
    }
}

/// What a claim has lost, or never held, is not reopened under it.
pub async fn a_message_is_reopened_by_its_claim_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let first = take_for_queue(&*store, "noop", 1).await;
    let seq = first.messages[0].message.seq;
    settle_dispatch(&*store, 1, &first.messages[0].message, failed(Duration::ZERO)).await;
    let second = take_for_queue(&*store, "noop", 1).await;
    for stranger in [first.token, Token::random()] {
        store.reopen(stranger, &[seq]).await.expect("reopen");
        assert_eq!(dispatched(&*store, &id).await.map(|read| read.status), Some(Status::Failed));
    }
    // Marked by its worker after the job was added, it stays as that has marked it.
    store.reopen(second.token, &[seq]).await.expect("reopen");
    outbox.set_status(&id, "FAILED").await.expect("marked");
    assert_eq!(dispatched(&*store, &id).await.map(|read| read.status), Some(Status::Failed));
    assert_eq!(number(&*store, &id).await, Some(2));
}
