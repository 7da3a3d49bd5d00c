//! Pruning, counting and mending.

use super::steps::{
    dead, enqueue, enqueue_many, failed, find, give_back_all, ids, in_ms, message, now, settle,
    take, take_alone, take_and_settle, take_batches, verdict,
};
use super::{Harness, PlainRow};
use postroom_core::{Backlog, Fate, LaneBacklog, Severity, Store};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// Only what is SENT, and long enough ago, goes.
pub async fn pruning_keeps_what_is_open_or_young(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut kept = Vec::new();
    for fate in [failed(HOUR), dead(), Fate::Sent] {
        enqueue(&*store, &message("noop")).await;
        kept.push(take_and_settle(&*store, "noop", fate).await.message.id);
    }
    kept.push(enqueue(&*store, &message("noop")).await);
    kept.push(outbox.insert(&PlainRow::new("noop").with("status", "ON_HOLD")).await.expect("row"));
    enqueue(&*store, &message("other")).await;
    let old = take_and_settle(&*store, "other", Fate::Sent).await.message.id;
    // All are old but the young SENT one; what is open may be as old as it likes.
    for id in kept.iter().filter(|id| **id != kept[2]).chain([&old]) {
        outbox.make_older(id, 3 * HOUR).await;
    }

    assert_eq!(store.prune(4 * HOUR, 100).await.expect("prune"), 0);
    assert_eq!(store.prune(2 * HOUR, 100).await.expect("prune"), 1);
    assert!(store.find(&old).await.expect("find").is_none());
    for id in kept {
        find(&*store, &id).await;
    }
}

/// Somebody who sets SENT by hand need not know of `sent_at`.
pub async fn what_was_set_to_sent_by_hand_is_pruned_by_its_age(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    outbox.set_status(&id, "SENT").await.expect("set by hand");
    assert_eq!(store.prune(HOUR, 10).await.expect("prune"), 0);
    outbox.make_older(&id, 3 * HOUR).await;
    assert_eq!(store.prune(HOUR, 10).await.expect("prune"), 1);
}

/// No claim ever comes by to find that a dead message was deleted.
pub async fn the_delivery_of_a_dead_message_that_was_deleted_is_pruned(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let gone = take_and_settle(&*store, "noop", dead()).await.message.id;
    enqueue(&*store, &message("noop")).await;
    let kept = take_and_settle(&*store, "noop", dead()).await.message.id;
    outbox.delete(&gone).await;
    assert_eq!(store.prune(HOUR, 10).await.expect("prune"), 0);
    assert_eq!(outbox.deliveries().await, 1);
    assert_eq!(find(&*store, &kept).await.status, "DEAD");
}

/// They are looked for in bounded steps, and again from the beginning after the last.
pub async fn such_deliveries_are_looked_for_round_after_round(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut all = Vec::new();
    for integration in ["b", "a", "b", "a", "b"] {
        enqueue(&*store, &message(integration)).await;
        all.push(take_and_settle(&*store, integration, dead()).await.message.id);
    }
    let round = async || {
        for _ in 0..3 {
            store.prune(HOUR, 2).await.expect("prune");
        }
    };
    for id in [all[0].clone(), all[3].clone(), all[4].clone()] {
        outbox.delete(&id).await;
    }
    round().await;
    assert_eq!(outbox.deliveries().await, 2);
    outbox.delete(&all[1]).await;
    round().await;
    assert_eq!(outbox.deliveries().await, 1);
    assert_eq!(find(&*store, &all[2]).await.status, "DEAD");
}

/// Pruning goes in bounded steps.
pub async fn pruning_stops_at_its_limit(outbox: &impl Harness) {
    let store = outbox.store().await;
    for id in enqueue_many(&*store, "noop", 5).await {
        take_and_settle(&*store, "noop", Fate::Sent).await;
        outbox.make_older(&id, 3 * HOUR).await;
    }
    for expected in [2, 2, 1, 0] {
        assert_eq!(store.prune(HOUR, 2).await.expect("prune"), expected);
    }
}

/// An event that was pruned may come again: the fence reaches as far as the history.
pub async fn a_pruned_event_can_be_enqueued_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    let new = message("noop").event_id("evt-1");
    let id = enqueue(&*store, &new).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    outbox.make_older(&id, 3 * HOUR).await;
    store.prune(HOUR, 10).await.expect("prune");
    assert_ne!(enqueue(&*store, &new).await, id);
}

/// The backlog counts every open message once, by integration.
pub async fn the_backlog_counts_by_integration(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert_eq!(store.backlog().await.expect("backlog"), Backlog::default());
    let base = in_ms(now(&*store).await);

    // a: 1 sent, 1 failed, 1 dead, 2 held, 3 waiting of which 1 for later.
    enqueue_many(&*store, "a", 5).await;
    let batch = take(&*store, "worker", &["a"], 5).await.expect("due");
    let fates = [Fate::Sent, failed(HOUR), dead()];
    let verdicts = batch.messages.iter().zip(fates).map(|(taken, fate)| verdict(taken, fate));
    settle(&*store, batch.token, verdicts.collect(), false).await;
    enqueue(&*store, &message("a").due_at(base - HOUR)).await;
    enqueue(&*store, &message("a")).await;
    enqueue(&*store, &message("a").due_at(base + HOUR)).await;
    // b: only what is for later. c: only a dead one that was long due.
    enqueue(&*store, &message("b").due_at(base + HOUR)).await;
    enqueue(&*store, &message("c").due_at(base - HOUR)).await;
    take_and_settle(&*store, "c", dead()).await;

    let mut backlog = store.backlog().await.expect("backlog");
    let lag = backlog.lag();
    assert!(HOUR <= lag && lag < HOUR + Duration::from_secs(600), "lag {lag:?}");
    backlog.lanes[0].lag_ms = 0;
    let lane = |name: &str, [pending, claimed, failed, dead]: [u64; 4]| LaneBacklog {
        integration: name.to_owned(),
        pending,
        claimed,
        failed,
        dead,
        lag_ms: 0,
    };
    let expected = [lane("a", [3, 2, 1, 1]), lane("b", [1, 0, 0, 0]), lane("c", [0, 0, 0, 1])];
    assert_eq!(backlog.lanes, expected);
    assert_eq!(backlog.total(|lane| lane.pending), 4);
}

/// A message that is tried again and again is not delivered: its lag counts from when it was first due.
/// One that was put off is waited for by nobody.
pub async fn a_failed_attempt_does_not_shorten_the_lag(outbox: &impl Harness) {
    let store = outbox.store().await;
    let due_at = in_ms(now(&*store).await) - HOUR;
    enqueue(&*store, &message("noop").due_at(due_at)).await;
    for delay in [Duration::ZERO, Duration::ZERO, HOUR] {
        take_and_settle(&*store, "noop", failed(delay)).await;
        assert!(store.backlog().await.expect("backlog").lag() >= HOUR);
    }
    enqueue(&*store, &message("other").due_at(due_at)).await;
    take_and_settle(&*store, "other", Fate::Postponed { delay: HOUR }).await;
    let backlog = store.backlog().await.expect("backlog");
    assert_eq!(backlog.lanes[1].lag_ms, 0, "{backlog:?}");
}

/// A claimed message is no lag; what was rescued waits like the others.
pub async fn the_backlog_follows_claims_and_rescues(outbox: &impl Harness) {
    let store = outbox.store().await;
    let due_at = in_ms(now(&*store).await) - HOUR;
    enqueue(&*store, &message("noop").due_at(due_at)).await;
    take(&*store, "worker", &["noop"], 1).await.expect("due");
    let held = store.backlog().await.expect("backlog");
    assert_eq!((held.lanes[0].claimed, held.lanes[0].pending), (1, 0));
    assert_eq!(held.lag(), Duration::ZERO);

    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let rescued = store.backlog().await.expect("backlog");
    assert_eq!((rescued.lanes[0].claimed, rescued.lanes[0].pending), (0, 1));
    assert!(rescued.lag() >= HOUR);

    // Lost alone, it has failed once.
    take_alone(&*store, "worker", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let failed = store.backlog().await.expect("backlog");
    assert_eq!((failed.lanes[0].failed, failed.lanes[0].pending), (1, 0));
}

/// The backlog follows changes by hand.
pub async fn the_backlog_follows_changes_by_hand(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 4).await;
    for (id, status) in all.iter().zip(["SENT", "FAILED", "DEAD"]) {
        outbox.set_status(id, status).await.expect("set");
    }
    let backlog = store.backlog().await.expect("backlog");
    let lane = &backlog.lanes[0];
    assert_eq!((lane.pending, lane.claimed, lane.failed, lane.dead), (1, 0, 1, 1));
}

/// What no trigger saw is found: every open message is delivered after all.
pub async fn messages_without_a_delivery_get_one(outbox: &impl Harness) {
    let store = outbox.store().await;
    // Where nobody has ever taken, a store may notice by itself that a ledger is missing.
    assert!(take(&*store, "worker", &["noop"], 10).await.is_none());
    let base = in_ms(now(&*store).await);
    let waiting = enqueue(&*store, &message("noop").due_at(base - HOUR)).await;
    let retried = enqueue(&*store, &message("noop")).await;
    outbox.set_status(&retried, "FAILED").await.expect("set");
    let later = enqueue(&*store, &message("noop").due_at(base + HOUR)).await;
    for status in ["DEAD", "SENT", "ON_HOLD"] {
        outbox.insert(&PlainRow::new("noop").with("status", status)).await.expect("a row");
    }
    outbox.delete_deliveries().await;
    assert!(take(&*store, "worker", &["noop"], 10).await.is_none());

    assert_eq!(store.reconcile().await.expect("reconcile").made, 4);
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), [waiting, retried]);
    assert_eq!(find(&*store, &later).await.status, "PENDING");
    let lane = &store.backlog().await.expect("backlog").lanes[0];
    assert_eq!((lane.pending, lane.claimed, lane.failed, lane.dead), (1, 2, 0, 1));
}

/// Deliveries whose message is gone go too; what is held is left to its holder.
pub async fn deliveries_without_a_message_go(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 3).await;
    take(&*store, "worker", &["noop"], 1).await.expect("due");
    outbox.delete(&all[0]).await;
    outbox.delete(&all[1]).await;
    assert_eq!(store.reconcile().await.expect("reconcile").removed, 1);
    assert_eq!(outbox.deliveries().await, 2);
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), [all[2].clone()]);
}

/// A delivery whose claim is gone is held by nobody, and would wait for ever.
pub async fn deliveries_under_a_claim_that_is_gone_are_freed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 4).await;
    give_back_all(&*store, "noop").await;
    let taken = take_batches(&*store, "worker", &["noop"], 3, |_| {}).await;
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
    // What was changed by hand while it was claimed counts now.
    outbox.set_integration(&all[1], "other").await;
    outbox.set_status(&all[2], "DEAD").await.expect("set by hand");
    outbox.delete_claims().await;
    take(&*store, "worker", &["noop"], 1).await.expect("due");
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);

    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.freed, mended.total()), (3, 3));
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(
        ids(&batch),
        [all[0].clone()],
        "the last is held by a claim that is there, the third is dead"
    );
    let batch = take(&*store, "worker", &["other"], 10).await.expect("due");
    assert_eq!(ids(&batch), [all[1].clone()]);
}

/// A message that was changed while triggers were off is delivered as it says by now; what is held
/// is left to its holder.
pub async fn deliveries_follow_what_no_trigger_saw(outbox: &impl Harness) {
    let store = outbox.store().await;
    let base = in_ms(now(&*store).await);
    let reopened = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", dead()).await;
    let held = enqueue(&*store, &message("noop")).await;
    take(&*store, "worker", &["noop"], 1).await.expect("due");
    let forward = enqueue(&*store, &message("noop").due_at(base + HOUR)).await;
    let failed = enqueue(&*store, &message("noop")).await;
    let elsewhere = enqueue(&*store, &message("noop")).await;
    let closed = enqueue(&*store, &message("noop")).await;
    give_back_all(&*store, "noop").await;
    outbox.set_unseen(&reopened, "status", "PENDING").await;
    outbox.set_unseen(&held, "integration_type", "other").await;
    outbox.set_unseen(&forward, "due_at", &(base - HOUR).to_rfc3339()).await;
    outbox.set_unseen(&failed, "status", "FAILED").await;
    outbox.set_unseen(&elsewhere, "integration_type", "other").await;
    outbox.set_unseen(&closed, "status", "DEAD").await;
    let unlike = "5 deliveries do not say what their messages say: they are made at another time, \
                  to another integration, or never";
    assert_eq!(problems(&*store, Severity::Fault).await, [unlike]);

    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.followed, mended.total()), (5, 5));
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let lane = &store.backlog().await.expect("backlog").lanes[0];
    assert_eq!((lane.pending, lane.claimed, lane.failed, lane.dead), (2, 1, 1, 1));
    // Another relay: the first may look behind what it has taken only after a while.
    let store = outbox.store().await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), [forward, reopened, failed]);
    let batch = take(&*store, "worker", &["other"], 10).await.expect("due");
    assert_eq!(ids(&batch), [elsewhere]);
}

/// What reconciliation would mend is reported, with what to do; after it there is nothing.
pub async fn what_does_not_agree_is_reported(outbox: &impl Harness) {
    let store = outbox.store().await;
    let ids = enqueue_many(&*store, "a", 3).await;
    give_back_all(&*store, "a").await;
    take(&*store, "worker", &["a"], 1).await.expect("due");
    outbox.delete(&ids[1]).await;
    assert_eq!(problems(&*store, Severity::Fault).await, [""; 0]);
    assert_eq!(
        problems(&*store, Severity::Warning).await,
        ["1 deliveries or parcels have no open message"]
    );
    outbox.delete_claims().await;
    let stuck = "1 deliveries are under a claim that does not exist: they are stuck";
    assert_eq!(problems(&*store, Severity::Fault).await, [stuck]);
    outbox.delete_deliveries().await;
    let unseen = "2 open messages are missing in the ledger: no relay sees them";
    assert_eq!(problems(&*store, Severity::Fault).await, [unseen]);
    store.reconcile().await.expect("reconcile");
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

async fn problems(store: &dyn Store, severity: Severity) -> Vec<String> {
    let findings = store.diagnose().await.expect("diagnose").into_iter();
    let findings = findings.filter(|finding| finding.severity == severity);
    findings
        .inspect(|finding| assert!(finding.remedy.contains("postroom reconcile"), "{finding:?}"))
        .map(|finding| finding.problem)
        .collect()
}

/// A migrated outbox is ready.
pub async fn a_migrated_outbox_is_ready(outbox: &impl Harness) {
    outbox.store().await.ready().await.expect("ready");
}
