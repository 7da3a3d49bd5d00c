//! Rows that somebody else has locked delay their own settlement, and no other.

use super::steps::{
    dead, enqueue_many, failed, find, number, settle, settle_dispatch, take, take_for_queue,
    verdict,
};
use super::{Commit, Harness};
use postroom_core::{Fate, MessageId, Settled, Verdict};
use std::time::Duration;

/// Locks a message; `None` where that cannot be, which is reported.
async fn lock(outbox: &impl Harness, test: &str, id: &MessageId) -> Option<Commit> {
    match outbox.lock(id).await {
        Ok(commit) => Some(commit),
        Err(reason) => {
            crate::skip(&format!("{} {test}", outbox.name()), reason);
            None
        }
    }
}

/// Every fate of messages that are free is recorded beside one that is locked, which is reported
/// and stays held. Once it is free, it is settled as any other.
pub async fn fault_49_what_is_not_locked_is_settled(outbox: &impl Harness) {
    let test = "fault_49_what_is_not_locked_is_settled";
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 6).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let Some(commit) = lock(outbox, test, &ids[1]).await else { return };
    let later = Duration::from_secs(600);
    let (held_up, status) =
        if outbox.notes_sent() { (failed(later), "FAILED") } else { (Fate::Sent, "SENT") };
    let fates = [
        Fate::Sent,
        held_up,
        failed(later),
        dead(),
        Fate::Released,
        Fate::Postponed { delay: later },
    ];
    let verdicts: Vec<Verdict> =
        batch.messages.iter().zip(fates).map(|(taken, fate)| verdict(taken, fate)).collect();
    let locked = verdicts[1].clone();
    let settled = settle(&*store, batch.token, verdicts, true).await;
    assert_eq!(settled, Settled { late: vec![], locked: vec![locked.seq] });
    let mut statuses = Vec::new();
    for id in &ids {
        statuses.push(find(&*store, id).await.status);
    }
    assert_eq!(statuses, ["SENT", "CLAIMED", "FAILED", "DEAD", "PENDING", "PENDING"]);
    assert_eq!(outbox.claims().await, 1, "it is held for the one that is left");

    let again = settle(&*store, batch.token, vec![locked.clone()], true).await;
    assert_eq!(again.locked, [locked.seq]);
    commit.await;
    let freed = settle(&*store, batch.token, vec![locked], true).await;
    assert_eq!(freed, Settled::default());
    assert_eq!(find(&*store, &ids[1]).await.status, status);
    assert_eq!(outbox.claims().await, 0);
}

/// The word on a dispatch waits for a locked message in the same way.
pub async fn fault_49_a_locked_dispatch_is_settled_later(outbox: &impl Harness) {
    let test = "fault_49_a_locked_dispatch_is_settled_later";
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 1).await;
    let batch = take_for_queue(&*store, "noop", 1).await;
    let message = &batch.messages[0].message;
    let Some(commit) = lock(outbox, test, &ids[0]).await else { return };
    let settled = settle_dispatch(&*store, 1, message, failed(Duration::ZERO)).await;
    assert_eq!(settled, Settled { late: vec![], locked: vec![message.seq] });
    assert_eq!(number(&*store, &ids[0]).await, Some(1), "its dispatch is not over");
    commit.await;
    let settled = settle_dispatch(&*store, 1, message, failed(Duration::ZERO)).await;
    assert_eq!(settled, Settled::default());
    assert_eq!(number(&*store, &ids[0]).await, Some(2));
}

/// Messages that somebody is changing are left for the next time, and hold up no other.
pub async fn fault_49_reconciling_passes_over_what_is_locked(outbox: &impl Harness) {
    let test = "fault_49_reconciling_passes_over_what_is_locked";
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "noop", 3).await;
    outbox.delete_deliveries().await;
    let Some(commit) = lock(outbox, test, &ids[1]).await else { return };
    assert_eq!(store.reconcile().await.expect("reconcile").made, 2);
    commit.await;
    assert_eq!(store.reconcile().await.expect("reconcile").made, 1);
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(batch.messages.len(), 3);
}
