//! Beginning to read a table that somebody else made, and leaving it again.

use super::steps::{delivered, due, insert, insert_many, migrated, of, reads, take_and_settle};
use super::{LayoutHarness, Words};
use crate::skip;
use postroom_core::{Fate, Severity};

/// Its columns and indexes are as before.
pub async fn the_table_gets_triggers_and_nothing_else(table: &impl LayoutHarness) {
    let before = table.described().await;
    table.migrate().await;
    assert_eq!(table.described().await, before);
}

/// Nothing is left to do.
pub async fn migrating_again_does_nothing(table: &impl LayoutHarness) {
    assert!(!table.migrate().await.is_empty());
    assert_eq!(table.migrate().await, [""; 0]);
}

/// Rows of the time before the migration; of those, the ones that are delivered already are left alone.
pub async fn rows_that_were_open_before_are_delivered(table: &impl LayoutHarness) {
    insert_many(table, 1, 3).await;
    if let Ok(sql) = table.words().insert_sent {
        table.execute(&of(sql, 4)).await.expect("inserted");
    }
    let store = migrated(table).await;
    assert_eq!(due(table, &*store).await, [1, 2, 3]);
}

/// The store begins, and a check finds nothing.
pub async fn a_migrated_table_is_ready_and_sound(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert_many(table, 1, 3).await;
    store.ready().await.expect("ready");
    let found = store.diagnose().await.expect("a look");
    let faults: Vec<_> = found.iter().filter(|one| one.severity == Severity::Fault).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

/// Going back: the ledger goes, the rows stay, their producers go on, and the owner reads what was delivered.
pub async fn the_table_outlives_its_ledger(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, Fate::Sent).await;
    insert(table, 2).await;
    drop(store);
    table.expire_claims().await;
    table.remove().await;
    insert(table, 3).await;
    assert_eq!(reads(table, 1).await, delivered(table));
    assert_eq!([reads(table, 2).await, reads(table, 3).await], ["open", "open"]);
    let store = migrated(table).await;
    assert_eq!(due(table, &*store).await, [2, 3], "and forth again");
}

/// A relay takes, settles, operates and looks with the rights of `--print-grants` alone.
pub async fn rights_of_a_relay_are_enough(table: &impl LayoutHarness) {
    table.migrate().await;
    let store = match table.store_of_relay().await {
        Ok(store) => store,
        Err(reason) => {
            return skip(&format!("{}: rights_of_a_relay_are_enough", table.name()), reason);
        }
    };
    let Words { leaves, .. } = table.words();
    store.ready().await.expect("ready");
    insert_many(table, 1, 2).await;
    let batches = super::steps::take(table, &*store).await;
    let fates = [Fate::Sent, crate::contract::steps::dead()];
    for batch in &batches {
        let verdicts = batch.messages.iter().zip(&fates);
        let verdicts =
            verdicts.map(|(taken, fate)| crate::contract::steps::verdict(taken, fate.clone()));
        crate::contract::steps::settle(&*store, batch.token, verdicts.collect(), true).await;
    }
    insert(table, 3).await;
    super::steps::take_and_settle(
        table,
        &*store,
        crate::contract::steps::failed(std::time::Duration::ZERO),
    )
    .await;
    take_and_settle(table, &*store, Fate::Released).await;
    let counts = store.status_counts().await.expect("counts");
    assert_eq!(counts.of(postroom_core::Status::Dead), 1);
    assert_eq!(counts.of(postroom_core::Status::Sent), u64::from(!leaves));
    store.backlog().await.expect("backlog");
    store.reconcile().await.expect("reconciled");
    store.diagnose().await.expect("a look");
}
