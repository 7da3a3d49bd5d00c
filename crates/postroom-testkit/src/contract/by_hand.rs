//! Changes by plain SQL: followed while no attempt is under way.

use super::steps::{
    assert_nothing_due, dead, enqueue, enqueue_many, failed, find, ids, in_ms, message, now,
    settle, settle_one, take, take_alone, take_and_settle, take_one, take_rescued, verdict,
};
use super::{Harness, PlainRow};
use postroom_core::Fate;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// A message set back to PENDING is delivered again, wherever it stood.
pub async fn set_back_to_pending_it_is_delivered_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [Fate::Sent, dead(), failed(Duration::ZERO)] {
        let id = enqueue(&*store, &message("noop")).await;
        take_and_settle(&*store, "noop", fate).await;
        outbox.set_status(&id, "PENDING").await.expect("set back");
        assert_eq!(find(&*store, &id).await.status, "PENDING");
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        assert_eq!(taken.message.id, id);
        assert!(settle_one(&*store, token, &taken, Fate::Sent).await.late.is_empty());
        assert_eq!(find(&*store, &id).await.status, "SENT");
        assert_eq!(outbox.deliveries().await, 0);
    }
}

/// A message that failed, and was delivered under another claim, is in nobody's hands while the rest of its first
/// batch still is.
pub async fn set_back_while_its_first_batch_is_under_way_it_is_delivered_again(
    outbox: &impl Harness,
) {
    let store = outbox.store().await;
    let together: Vec<_> = (0..2).map(|_| message("noop")).collect();
    store.accept(&together, None).await.expect("accepted");
    let first = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let id = &first.messages[0].message.id;
    let failure = verdict(&first.messages[0], failed(Duration::ZERO));
    settle(&*store, first.token, vec![failure], false).await;
    for turn in 0..2 {
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        assert_eq!(taken.message.id, *id);
        settle_one(&*store, token, &taken, Fate::Sent).await;
        assert_eq!(find(&*store, id).await.status, "SENT");
        if turn == 0 {
            outbox.set_status(id, "PENDING").await.expect("set back");
            assert_eq!(find(&*store, id).await.status, "PENDING");
            let lane = store.backlog().await.expect("backlog").lanes.remove(0);
            assert_eq!((lane.pending, lane.claimed), (1, 1));
        }
    }
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1, "the other one alone");
}

/// A message sent elsewhere is delivered there, and no longer here; one that was claimed, once
/// its claim is over.
pub async fn sent_elsewhere_it_is_delivered_there(outbox: &impl Harness) {
    let store = outbox.store().await;
    let waiting = enqueue(&*store, &message("noop")).await;
    outbox.set_integration(&waiting, "other").await;
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(take_and_settle(&*store, "other", Fate::Sent).await.message.id, waiting);

    let claimed = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "worker", "noop").await;
    outbox.set_integration(&claimed, "other").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert!(take_rescued(&*store, "worker", &["noop"]).await.is_empty());
    assert_eq!(take_rescued(&*store, "worker", &["other"]).await.len(), 1);
}

/// A count at the end of its type stays there, and stops nobody.
pub async fn attempts_set_to_the_end_of_their_type_stay_there(outbox: &impl Harness) {
    let store = outbox.store().await;
    let row = PlainRow::new("noop").with("attempts", "2147483647");
    let id = outbox.insert(&row).await.expect("a row that makes no sense");
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    assert_eq!(find(&*store, &id).await.message.attempts, 2_147_483_647);
    take(&*store, "worker", &["noop"], 10).await.expect("due");
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    take_alone(&*store, "worker", "noop").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(find(&*store, &id).await.message.attempts, 2_147_483_647);
}

/// A message marked SENT or DEAD is not delivered.
pub async fn marked_sent_or_dead_it_is_not_delivered(outbox: &impl Harness) {
    let store = outbox.store().await;
    for status in ["SENT", "DEAD"] {
        let id = enqueue(&*store, &message("noop")).await;
        outbox.set_status(&id, status).await.expect("marked");
        assert_nothing_due(&*store, "noop").await;
        assert_eq!(find(&*store, &id).await.status, status);
    }
    // The dead one can still be set back; of the sent one nothing is left to do.
    assert_eq!(outbox.deliveries().await, 1);
}

/// A status nobody knows takes a message out of delivery until it is set back.
pub async fn given_an_unknown_status_it_is_left_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    outbox.set_status(&id, "ON_HOLD").await.expect("held");
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &id).await.status, "ON_HOLD");
    outbox.set_status(&id, "PENDING").await.expect("set back");
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, id);
}

/// Another due time counts, earlier or later.
pub async fn another_due_time_is_followed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let base = in_ms(now(&*store).await);
    let postponed = enqueue(&*store, &message("noop")).await;
    let brought_forward = enqueue(&*store, &message("noop").due_at(base + HOUR)).await;
    outbox.set_due_at(&postponed, base + HOUR).await;
    outbox.set_due_at(&brought_forward, base - HOUR).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), [brought_forward]);
    assert_eq!(batch.messages[0].message.due_at, base - HOUR);
    assert_eq!(find(&*store, &postponed).await.message.due_at, base + HOUR);
}

/// A failed message whose due time is brought forward is tried again now.
pub async fn a_failed_message_can_be_brought_forward(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", failed(HOUR)).await;
    outbox.set_due_at(&id, in_ms(now(&*store).await) - Duration::from_secs(1)).await;
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.message.attempts), (id, 1));
}

/// A dead message stays dead when its due time changes.
pub async fn a_dead_message_stays_dead_whatever_its_due_time(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_and_settle(&*store, "noop", dead()).await;
    outbox.set_due_at(&id, in_ms(now(&*store).await) - HOUR).await;
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &id).await.status, "DEAD");
}

/// A message that was deleted is not delivered, and holds nobody up.
pub async fn deleted_it_is_gone_and_its_lane_goes_on(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 3).await;
    outbox.delete(&all[0]).await;
    outbox.delete(&all[1]).await;
    let mut taken = Vec::new();
    // A take may spend itself on what is gone; the next one does not.
    for _ in 0..3 {
        taken.extend(take(&*store, "worker", &["noop"], 1).await.iter().flat_map(ids));
    }
    assert_eq!(taken, [all[2].clone()]);
    assert_eq!(outbox.deliveries().await, 1);
    assert!(store.find(&all[0]).await.expect("find").is_none());
}

/// A rescued message that was deleted is gone as well.
pub async fn deleted_after_a_rescue_it_is_gone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let all = enqueue_many(&*store, "noop", 2).await;
    take(&*store, "dying", &["noop"], 10).await.expect("due");
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    outbox.delete(&all[0]).await;
    let mut rescued = Vec::new();
    for _ in 0..3 {
        rescued.extend(take_rescued(&*store, "worker", &["noop"]).await.iter().flat_map(ids));
    }
    assert_eq!(rescued, [all[1].clone()]);
    assert_eq!(outbox.deliveries().await, 1);
}

/// A message that is deleted during its attempt does no harm.
pub async fn deleted_during_an_attempt_it_is_gone_afterwards(outbox: &impl Harness) {
    let store = outbox.store().await;
    let postponed = Fate::Postponed { delay: Duration::ZERO };
    for fate in [Fate::Sent, failed(Duration::ZERO), Fate::Released, postponed] {
        let id = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        outbox.delete(&id).await;
        settle_one(&*store, token, &taken, fate).await;
        assert_nothing_due(&*store, "noop").await;
        assert_eq!(outbox.deliveries().await, 0);
    }
}

/// An attempt under way decides for itself.
pub async fn a_change_during_an_attempt_yields_to_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    for (by_hand, fate, status) in [
        ("SENT", failed(Duration::ZERO), "FAILED"),
        ("DEAD", Fate::Sent, "SENT"),
        ("FAILED", Fate::Sent, "SENT"),
        ("SENT", dead(), "DEAD"),
    ] {
        let id = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        outbox.set_status(&id, by_hand).await.expect("changed");
        outbox.set_due_at(&id, in_ms(now(&*store).await) - HOUR).await;
        assert_eq!(find(&*store, &id).await.status, "CLAIMED");
        assert_nothing_due(&*store, "noop").await;
        assert!(settle_one(&*store, token, &taken, fate).await.late.is_empty());
        assert_eq!(find(&*store, &id).await.status, status);
        outbox.delete(&id).await;
        assert_nothing_due(&*store, "noop").await;
    }
}

/// What was closed during an attempt that came to nothing is not delivered again.
pub async fn closed_during_an_attempt_that_was_released_it_stays_closed(outbox: &impl Harness) {
    let store = outbox.store().await;
    for status in ["SENT", "DEAD", "ON_HOLD"] {
        for fate in [Fate::Released, Fate::Postponed { delay: Duration::ZERO }] {
            let id = enqueue(&*store, &message("noop")).await;
            let (token, taken) = take_one(&*store, "worker", "noop").await;
            outbox.set_status(&id, status).await.expect("changed");
            settle_one(&*store, token, &taken, fate).await;
            assert_nothing_due(&*store, "noop").await;
            assert_eq!(find(&*store, &id).await.status, status);
        }
    }
}

/// Nor after its relay was lost, alone or not; no attempt is counted then.
pub async fn closed_during_an_attempt_that_was_lost_it_stays_closed(outbox: &impl Harness) {
    let store = outbox.store().await;
    for status in ["SENT", "DEAD", "ON_HOLD"] {
        for is_alone in [false, true] {
            let id = enqueue(&*store, &message("noop")).await;
            take_one(&*store, "dying", "noop").await;
            if is_alone {
                outbox.expire_claims().await;
                store.rescue(10).await.expect("rescue");
                take_alone(&*store, "dying", "noop").await;
            }
            outbox.set_status(&id, status).await.expect("changed");
            outbox.expire_claims().await;
            assert_eq!(store.rescue(10).await.expect("rescue"), 1);
            assert_nothing_due(&*store, "noop").await;
            let record = find(&*store, &id).await;
            assert_eq!((record.status.as_str(), record.message.attempts), (status, 0));
            let lane = store.backlog().await.expect("backlog").lanes.pop();
            assert_eq!(lane.is_some_and(|lane| lane.dead == 1), status == "DEAD");
            outbox.delete(&id).await;
            store.prune(HOUR, 10).await.expect("prune");
        }
    }
}

/// A due time that was set during an attempt counts once the attempt has come to nothing.
pub async fn a_due_time_set_during_an_attempt_is_followed_after_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    let later = in_ms(now(&*store).await) + HOUR;
    for fate in [Fate::Released, Fate::Postponed { delay: Duration::ZERO }] {
        let released = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        outbox.set_due_at(&released, later).await;
        settle_one(&*store, token, &taken, fate).await;
        assert_nothing_due(&*store, "noop").await;
        assert_eq!(find(&*store, &released).await.message.due_at, later);
    }

    let lost = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.set_due_at(&lost, later).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_nothing_due(&*store, "noop").await;
}

/// A message that was sent elsewhere during an attempt goes there once it was given back.
pub async fn sent_elsewhere_during_an_attempt_it_goes_there_after_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    // Put off was what was said of the lane that it has left.
    for fate in [Fate::Released, Fate::Postponed { delay: HOUR }] {
        let id = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "worker", "noop").await;
        outbox.set_integration(&id, "other").await;
        settle_one(&*store, token, &taken, fate).await;
        assert_nothing_due(&*store, "noop").await;
        assert_eq!(take_one(&*store, "worker", "other").await.1.message.id, id);
    }
}

/// A rescued message that someone looked after is one among others again.
pub async fn a_change_by_hand_ends_being_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    outbox.set_due_at(&id, in_ms(now(&*store).await) - HOUR).await;
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!((taken.message.id, taken.rescues), (id, 0));
}

/// A row that was corrected and set back is delivered as it stands now.
pub async fn a_row_inserted_dead_can_be_set_to_pending(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = outbox.insert(&PlainRow::new("noop").with("status", "DEAD")).await.expect("a row");
    outbox.set_status(&id, "PENDING").await.expect("set back");
    assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, id);
}

/// An object that was read before its message was sent says PENDING, and knows nothing of what was
/// written since.
pub async fn fault_47_a_stale_row_saved_over_a_sent_one_is_delivered_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [Fate::Sent, dead(), failed(HOUR)] {
        let id = enqueue(&*store, &message("noop")).await;
        let save = outbox.read_whole(&id).await;
        take_and_settle(&*store, "noop", fate).await;
        save.await;
        let record = find(&*store, &id).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("PENDING", 0));
        assert_eq!(take_and_settle(&*store, "noop", Fate::Sent).await.message.id, id);
    }
}

/// One that was read between two attempts carries what Postroom wrote after the first.
pub async fn fault_47_a_stale_row_of_an_earlier_failure_is_followed(outbox: &impl Harness) {
    let store = outbox.store().await;
    for fate in [failed(HOUR), dead(), Fate::Sent] {
        let id = enqueue(&*store, &message("noop")).await;
        take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
        let save = outbox.read_whole(&id).await;
        take_and_settle(&*store, "noop", fate).await;
        save.await;
        let record = find(&*store, &id).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("FAILED", 1));
        assert_eq!(take_and_settle(&*store, "noop", Fate::Sent).await.message.id, id);
    }
}

/// The older of two stale objects is saved first: the younger looks like progress, and is none.
pub async fn fault_47_stale_rows_saved_one_after_another_are_each_followed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let mut saves = Vec::new();
    for _ in 0..3 {
        saves.push(outbox.read_whole(&id).await);
        take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    }
    let closed = outbox.read_whole(&id).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    for save in saves.into_iter().chain([closed]) {
        save.await;
        assert_eq!(take_one(&*store, "worker", "noop").await.1.message.id, id);
        outbox.expire_claims().await;
        assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    }
}

/// The attempt under way decides, as it does over every change by hand.
pub async fn fault_47_a_stale_row_saved_during_an_attempt_yields_to_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let save = outbox.read_whole(&id).await;
    take_and_settle(&*store, "noop", failed(Duration::ZERO)).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    save.await;
    assert_nothing_due(&*store, "noop").await;
    assert!(settle_one(&*store, token, &taken, Fate::Sent).await.late.is_empty());
    assert_eq!(find(&*store, &id).await.status, "SENT");
    assert_nothing_due(&*store, "noop").await;
}
