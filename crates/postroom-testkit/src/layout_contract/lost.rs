//! Relays that die, restores, and keys that come again.

use super::LayoutHarness;
use super::steps::{
    delivered, due, insert, insert_many, migrated, of, reads, settle_one, take, take_one,
};
use crate::contract::steps::take_rescued;
use crate::skip;
use postroom_core::Fate;

/// Nothing is lost with it.
pub async fn the_claim_of_a_dead_relay_is_rescued(table: &impl LayoutHarness) {
    let lane = table.words().lane;
    let store = migrated(table).await;
    insert_many(table, 1, 3).await;
    assert_eq!(due(table, &*store).await, [1, 2, 3]);
    table.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescued"), 3);
    let mut again = 0;
    loop {
        let batches = take_rescued(&*store, "another", &[lane]).await;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            for taken in &batch.messages {
                again += 1;
                let verdicts = vec![crate::contract::steps::verdict(taken, Fate::Sent)];
                crate::contract::steps::settle(&*store, batch.token, verdicts, false).await;
            }
        }
    }
    assert_eq!(again, 3);
    assert_eq!(reads(table, 2).await, delivered(table));
}

/// By reconciliation, or the poll.
pub async fn rows_restored_without_triggers_are_found(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    for n in [1, 2] {
        table.execute_unseen(&of(table.words().insert, n)).await;
    }
    if table.has_triggers().is_ok() {
        let mended = store.reconcile().await.expect("reconciled");
        assert_eq!(mended.made, 2);
    }
    assert_eq!(due(table, &*store).await, [1, 2]);
}

/// An attempt at the first one says nothing about the second.
pub async fn a_key_that_comes_again_is_another_message(table: &impl LayoutHarness) {
    let name = format!("{}: a_key_that_comes_again_is_another_message", table.name());
    if let Err(reason) = table.words().key_comes_again {
        return skip(&name, reason);
    }
    let (words, store) = (table.words(), migrated(table).await);
    insert(table, 1).await;
    let (token, taken) = take_one(table, &*store).await;
    let delete = format!("DELETE FROM {} WHERE {}", words.table, of(words.row, 1));
    table.execute(&delete).await.expect("deleted");
    insert(table, 1).await;
    settle_one(&*store, token, &taken, Fate::Sent).await;
    assert_eq!(reads(table, 1).await, "open", "the new row was not delivered");
    let (token, again) = take_one(table, &*store).await;
    assert_ne!(again.message.id, taken.message.id);
    settle_one(&*store, token, &again, Fate::Sent).await;
    assert_eq!(reads(table, 1).await, delivered(table));
}

/// With numbers restarted: what was under way concerns no new row.
pub async fn a_truncated_table_starts_again(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert_many(table, 1, 5).await;
    let batches = take(table, &*store).await;
    table.truncate().await;
    insert_many(table, 1, 2).await;
    for batch in &batches {
        let verdicts =
            batch.messages.iter().map(|taken| crate::contract::steps::verdict(taken, Fate::Sent));
        crate::contract::steps::settle(&*store, batch.token, verdicts.collect(), true).await;
    }
    let again_open = table.words().key_comes_again.is_ok();
    if again_open {
        assert_eq!([reads(table, 1).await, reads(table, 2).await], ["open", "open"]);
        assert_eq!(due(table, &*store).await, [1, 2]);
    }
    insert(table, 6).await;
    let left = take_and_settle_all(table, &*store).await;
    assert!(left.contains(&6), "{left:?}");
    assert_eq!(reads(table, 6).await, delivered(table));
}

async fn take_and_settle_all(
    table: &impl LayoutHarness,
    store: &dyn postroom_core::Store,
) -> Vec<u32> {
    let mut seen = Vec::new();
    for batch in take(table, store).await {
        for taken in &batch.messages {
            seen.push(super::steps::number(taken));
            let verdicts = vec![crate::contract::steps::verdict(taken, Fate::Sent)];
            crate::contract::steps::settle(store, batch.token, verdicts, false).await;
        }
    }
    seen
}
