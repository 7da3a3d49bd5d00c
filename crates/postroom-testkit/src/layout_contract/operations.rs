//! What operators do through Postroom.

use super::LayoutHarness;
use super::steps::{delivered, due, insert, insert_many, migrated, reads, shown, take_and_settle};
use crate::contract::steps::{begin, dead, failed};
use postroom_core::{Fate, Key, Operation, REPLAY_HEADER, Record, Status};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn key(record: &Record) -> Key {
    Key { seq: record.message.seq, id: record.message.id.clone() }
}

/// With all its attempts.
pub async fn a_dead_message_is_redriven(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, dead()).await;
    let keys = [key(&shown(&*store, 1).await)];
    let action = begin(&*store, Operation::Redrive).await;
    assert_eq!(store.redrive(action, &keys).await.expect("redriven"), 1);
    assert_eq!(store.redrive(action, &keys).await.expect("none is dead"), 0);
    let taken = take_and_settle(table, &*store, Fate::Sent).await;
    assert_eq!(taken.message.attempts, 0);
    assert_eq!(reads(table, 1).await, delivered(table));
}

/// Fresh or failed.
pub async fn a_waiting_message_is_cancelled(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, failed(HOUR)).await;
    insert_many(table, 2, 3).await;
    let keys = [key(&shown(&*store, 1).await), key(&shown(&*store, 2).await)];
    let action = begin(&*store, Operation::Cancel).await;
    assert_eq!(store.cancel(action, &keys).await.expect("cancelled"), 2);
    for n in [1, 2] {
        let record = shown(&*store, n).await;
        assert_eq!(
            (record.status.as_str(), record.last_error.as_deref()),
            ("DEAD", Some("cancelled"))
        );
    }
    assert_eq!(due(table, &*store).await, [3]);
}

/// Or is refused, where a row cannot be opened again.
pub async fn a_replay_opens_the_row_and_says_so(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    if table.words().leaves {
        let record = shown(&*store, 1).await;
        let action = begin(&*store, Operation::Replay).await;
        let refused =
            store.replay(action, &[key(&record)], false).await.expect_err("nothing to open");
        assert!(refused.to_string().contains("cannot be replayed"), "{refused}");
        return;
    }
    let first = take_and_settle(table, &*store, Fate::Sent).await;
    let record = shown(&*store, 1).await;
    let action = begin(&*store, Operation::Replay).await;
    let refused =
        store.replay(action, &[key(&record)], true).await.expect_err("its event id stays");
    assert!(refused.to_string().contains("fresh event ids"), "{refused}");
    let again = store.replay(action, &[key(&record)], false).await.expect("replayed");
    assert_eq!(again, std::slice::from_ref(&record.message.id));
    assert_eq!(reads(table, 1).await, "open");
    let taken = take_and_settle(table, &*store, Fate::Sent).await;
    assert_eq!(taken.message.event_id, first.message.event_id, "receivers know it");
    let headers = taken.message.headers.expect("a replay has a header");
    let headers: serde_json::Value = serde_json::from_str(headers.as_str()).expect("JSON");
    assert_eq!(headers[REPLAY_HEADER], record.message.id.to_string());
    assert_eq!(reads(table, 1).await, "sent");
    assert_eq!(table.left_in_ledger().await, 0);
}

/// Only an operator, or a retention of the configuration, deletes what somebody else's table holds.
pub async fn rows_of_the_owner_stay_unless_somebody_asks_for_their_end(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, Fate::Sent).await;
    insert(table, 2).await;
    if table.words().leaves {
        return;
    }
    let action = begin(&*store, Operation::Prune).await;
    let pruned =
        store.prune_on_record(action, Status::Sent, Duration::ZERO, 10).await.expect("pruned");
    assert_eq!(pruned, 1, "an operator asked for it");
    assert_eq!((reads(table, 1).await.as_str(), reads(table, 2).await.as_str()), ("gone", "open"));
}
