//! What the owner does to rows by hand, or by tools of their own.

use super::steps::{
    change, delivered, due, insert, insert_many, migrated, of, reads, settle_one, shown,
    take_and_settle, take_one,
};
use super::{LayoutHarness, Words};
use crate::contract::steps::{dead, failed};
use crate::skip;
use postroom_core::{Fate, Settled};
use std::time::Duration;

/// Whether it was fresh or had failed.
pub async fn closed_by_hand_it_is_not_delivered(table: &impl LayoutHarness) {
    let close = match table.words().close {
        Ok(set) => set,
        Err(reason) => {
            return skip(&format!("{}: closed_by_hand_it_is_not_delivered", table.name()), reason);
        }
    };
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, failed(Duration::ZERO)).await;
    insert_many(table, 2, 4).await;
    for n in [1, 3] {
        change(table, close, n).await;
    }
    assert_eq!(due(table, &*store).await, [2, 4]);
}

/// A row that was delivered.
pub async fn opened_by_hand_it_is_delivered_again(table: &impl LayoutHarness) {
    let open = match table.words().open {
        Ok(set) => set,
        Err(reason) => {
            return skip(
                &format!("{}: opened_by_hand_it_is_delivered_again", table.name()),
                reason,
            );
        }
    };
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, Fate::Sent).await;
    change(table, open, 1).await;
    assert_eq!(reads(table, 1).await, "open");
    take_and_settle(table, &*store, Fate::Sent).await;
    assert_eq!(reads(table, 1).await, delivered(table));
    assert_eq!(table.left_in_ledger().await, 0);
}

/// As its owner replays dead rows.
pub async fn opened_by_hand_a_dead_one_has_all_its_attempts(table: &impl LayoutHarness) {
    let name = format!("{}: opened_by_hand_a_dead_one_has_all_its_attempts", table.name());
    let Words { open, attempts, .. } = table.words();
    let open = match (open, attempts) {
        (Ok(set), Some(_)) => set,
        (Err(reason), _) => return skip(&name, reason),
        (_, None) => {
            return skip(
                &name,
                "a dead row looks like an open one: `postroom messages redrive` opens it",
            );
        }
    };
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, dead()).await;
    change(table, open, 1).await;
    let taken = take_and_settle(table, &*store, Fate::Sent).await;
    assert_eq!(taken.message.attempts, 0);
    assert_eq!(reads(table, 1).await, delivered(table));
}

/// The attempt decides.
pub async fn a_change_during_an_attempt_yields_to_it(table: &impl LayoutHarness) {
    let close = match table.words().close {
        Ok(set) => set,
        Err(reason) => {
            return skip(
                &format!("{}: a_change_during_an_attempt_yields_to_it", table.name()),
                reason,
            );
        }
    };
    let store = migrated(table).await;
    insert(table, 1).await;
    let (token, taken) = take_one(table, &*store).await;
    change(table, close, 1).await;
    assert_eq!(settle_one(&*store, token, &taken, Fate::Sent).await, Settled::default());
    assert_eq!(reads(table, 1).await, "sent");
    assert_eq!(due(table, &*store).await, [0; 0]);
    assert_eq!(table.left_in_ledger().await, 0);
}

/// Its lane goes on. What a poll has not seen yet is gone without a trace.
pub async fn deleted_it_is_counted_as_vanished(table: &impl LayoutHarness) {
    let Words { table: name, row, lane, .. } = table.words();
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, failed(Duration::ZERO)).await;
    insert_many(table, 2, 4).await;
    for n in [1, 3] {
        table.execute(&format!("DELETE FROM {name} WHERE {}", of(row, n))).await.expect("deleted");
    }
    assert_eq!(due(table, &*store).await, [2, 4]);
    let vanished = store.vanished();
    let counts: Vec<_> =
        vanished.iter().map(|one| (one.integration.as_str(), one.messages)).collect();
    let seen = if table.has_triggers().is_ok() { 2 } else { 1 };
    assert_eq!(counts, [(lane, seen)]);
    assert!(store.vanished().is_empty(), "each is told once");
}

/// A column that Postroom does not read.
pub async fn a_change_of_something_else_is_none_of_ours(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, Fate::Sent).await;
    if table.words().leaves {
        return;
    }
    change(table, table.words().touch, 1).await;
    assert_eq!(table.left_in_ledger().await, 0);
    assert_eq!(shown(&*store, 1).await.status, "SENT");
    assert_eq!(due(table, &*store).await, [0; 0]);
}
