//! Several relays at once.

use super::Harness;
use super::steps::{
    assert_nothing_due, enqueue, enqueue_many, find, ids, message, settle_one, take, take_one,
    take_rescued,
};
use postroom_core::Fate;
use std::collections::HashSet;

/// Claimers that race share the messages out: each goes to one of them, and none is left.
pub async fn two_claimers_never_overlap(outbox: &impl Harness) {
    const MESSAGES: usize = 400;
    let all: HashSet<_> =
        enqueue_many(&*outbox.store().await, "noop", MESSAGES).await.into_iter().collect();
    let mut claimers = tokio::task::JoinSet::new();
    for worker in ["one", "two", "three"] {
        let store = outbox.store().await;
        claimers.spawn(async move {
            let mut taken = Vec::new();
            while let Some(batch) = take(&*store, worker, &["noop"], 7).await {
                taken.extend(ids(&batch));
            }
            taken
        });
    }
    let taken: Vec<_> = claimers.join_all().await.into_iter().flatten().collect();
    // What a claimer finds locked by another it leaves; by now nobody holds a lock.
    let rest = take(&*outbox.store().await, "last", &["noop"], MESSAGES).await;
    let taken: Vec<_> = taken.into_iter().chain(rest.iter().flat_map(ids)).collect();
    assert_eq!(taken.len(), MESSAGES);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), all);
}

/// Whoever wins, SENT stays SENT, and what was lost is delivered again.
pub async fn fault_08_a_rescue_racing_a_completion_leaves_sent_as_sent(outbox: &impl Harness) {
    let (relay, rescuer) = (outbox.store().await, outbox.store().await);
    for _ in 0..30 {
        let id = enqueue(&*relay, &message("noop")).await;
        let (token, taken) = take_one(&*relay, "slow", "noop").await;
        outbox.expire_claims().await;
        let (settled, freed) =
            tokio::join!(settle_one(&*relay, token, &taken, Fate::Sent), rescuer.rescue(10));
        let freed = freed.expect("rescue");

        if settled.late.is_empty() {
            assert_eq!(freed, 0, "freed after it was SENT");
        } else {
            assert_eq!((settled.late, freed), (vec![taken.message.seq], 1));
            assert_eq!(find(&*relay, &id).await.status, "PENDING");
            let mut rescued = take_rescued(&*relay, "next", &["noop"]).await;
            let batch = rescued.pop().expect("the rescued message");
            let again = settle_one(&*relay, batch.token, &batch.messages[0], Fate::Sent).await;
            assert!(again.late.is_empty());
        }
        assert_eq!(find(&*relay, &id).await.status, "SENT");
        assert_nothing_due(&*relay, "noop").await;
        assert_eq!((outbox.deliveries().await, outbox.claims().await), (0, 0));
    }
}

/// A number is no commit order: what commits late is found all the same.
pub async fn fault_12_a_low_number_that_commits_late_is_delivered(outbox: &impl Harness) {
    let store = outbox.store().await;
    let early = message("noop").event_id("early");
    let commit = match outbox.enqueue_uncommitted(&early).await {
        Ok(commit) => commit,
        Err(reason) => {
            let test = "fault_12_a_low_number_that_commits_late_is_delivered";
            return crate::skip(&format!("{} {test}", outbox.name()), reason);
        }
    };
    let later = enqueue_many(&*store, "noop", 3).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), later);
    for taken in &batch.messages {
        settle_one(&*store, batch.token, taken, Fate::Sent).await;
    }
    commit.await;
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!(taken.message.event_id, "early");
    assert!(taken.message.seq < batch.messages[0].message.seq);
}

/// An idle relay hears of a new message at once, where the database can tell.
pub async fn a_new_message_wakes_an_idle_relay(outbox: &impl Harness) {
    let (relay, producer) = (outbox.store().await, outbox.store().await);
    let Some(mut wake) = relay.wake().await else {
        let test = "a_new_message_wakes_an_idle_relay";
        let reason = "this store has no signal: the relay's poll finds new messages";
        return crate::skip(&format!("{} {test}", outbox.name()), reason);
    };
    for _ in 0..3 {
        wake.busy(true).await;
        wake.busy(false).await;
        enqueue(&*producer, &message("noop")).await;
        tokio::time::timeout(std::time::Duration::from_secs(30), wake.woken())
            .await
            .expect("woken by the new message");
    }
}
