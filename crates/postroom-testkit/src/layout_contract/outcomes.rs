//! What the owner of a table reads after an attempt.

use super::LayoutHarness;
use super::steps::{
    delivered, due, insert, insert_many, migrated, reads, says, settle_one, shown, take,
    take_and_settle, take_one,
};
use crate::contract::steps::{dead, failed, settle, verdict};
use crate::skip;
use postroom_core::{Fate, Settled};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// And the ledger forgets it.
pub async fn delivered_reads_as_its_owner_reads_it(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert_many(table, 1, 2).await;
    assert_eq!(reads(table, 1).await, "open");
    for batch in take(table, &*store).await {
        let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
        assert_eq!(settle(&*store, batch.token, verdicts, true).await, Settled::default());
    }
    for n in [1, 2] {
        assert_eq!(reads(table, n).await, delivered(table));
    }
    assert_eq!(table.left_in_ledger().await, 0);
    assert_eq!(due(table, &*store).await, [0; 0]);
}

/// Once it is written.
pub async fn recorded_in_the_background_it_reads_the_same(table: &impl LayoutHarness) {
    let name = format!("{}: recorded_in_the_background_it_reads_the_same", table.name());
    table.migrate().await;
    let store = match table.store_in_background().await {
        Ok(store) => store,
        Err(reason) => return skip(&name, reason),
    };
    insert_many(table, 1, 70).await;
    for batch in take(table, &*store).await {
        let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
        assert_eq!(settle(&*store, batch.token, verdicts, true).await, Settled::default());
    }
    assert_eq!(reads(table, 70).await, "open", "its owner does not see it yet");
    assert_eq!(shown(&*store, 70).await.status, "SENT", "tools do");
    assert_eq!(due(table, &*store).await, [0; 0], "and nobody takes it again");
    store.record_sent(Duration::ZERO, 1_000).await.expect("recorded");
    for n in [1, 70] {
        assert_eq!(reads(table, n).await, "sent");
    }
    assert_eq!(table.left_in_ledger().await, 0);
}

/// Where rows count attempts and keep an error, the owner finds them there.
pub async fn a_failure_is_tried_again_and_counted(table: &impl LayoutHarness) {
    let words = table.words();
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, failed(Duration::ZERO)).await;
    assert_eq!(reads(table, 1).await, "open");
    let record = shown(&*store, 1).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("FAILED", 1));
    assert_eq!(record.last_error.as_deref(), Some("503 from the receiver"));
    let taken = take_and_settle(table, &*store, failed(HOUR)).await;
    assert_eq!(taken.message.attempts, 1);
    assert_eq!(due(table, &*store).await, [0; 0], "not before its time");
    assert_eq!(shown(&*store, 1).await.message.attempts, 2);
    if let Some(attempts) = words.attempts {
        assert_eq!(says(table, attempts, 1).await.as_deref(), Some("2"));
    }
    if let Some(error) = words.error {
        assert_eq!(says(table, error, 1).await.as_deref(), Some("503 from the receiver"));
    }
    assert_eq!(store.attempts(&record.message.id).await.expect("attempts").len(), 2);
    let found = store.reconcile().await.expect("reconciled");
    assert_eq!(found, postroom_core::Reconciled::default(), "row and ledger agree");
}

/// In the row where it has a word for that, and else in the ledger.
pub async fn a_death_is_final_and_says_why(table: &impl LayoutHarness) {
    let words = table.words();
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, dead()).await;
    let record = shown(&*store, 1).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("DEAD", 1));
    assert_eq!(record.last_error.as_deref(), Some("400 from the receiver"));
    assert_eq!(due(table, &*store).await, [0; 0]);
    if words.attempts.is_some() {
        assert_eq!(reads(table, 1).await, "dead");
    }
    let counts = store.status_counts().await.expect("counts");
    assert_eq!(counts.of(postroom_core::Status::Dead), 1);
    let found = store.reconcile().await.expect("reconciled");
    assert_eq!(found, postroom_core::Reconciled::default(), "row and ledger agree");
}

/// It is due at once, or after the delay that was asked for.
pub async fn what_was_released_is_as_before(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    take_and_settle(table, &*store, Fate::Released).await;
    let taken = take_and_settle(table, &*store, Fate::Postponed { delay: HOUR }).await;
    assert_eq!(taken.message.attempts, 0);
    assert_eq!(due(table, &*store).await, [0; 0]);
    assert_eq!(
        (reads(table, 1).await.as_str(), shown(&*store, 1).await.status.as_str()),
        ("open", "PENDING")
    );
}

/// A relay that lost its claim.
pub async fn a_late_word_changes_nothing(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    let (late, taken) = take_one(table, &*store).await;
    table.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescued"), 1);
    let settled = settle_one(&*store, late, &taken, dead()).await;
    assert_eq!(settled.late, [taken.message.seq]);
    assert_eq!(
        (reads(table, 1).await.as_str(), shown(&*store, 1).await.status.as_str()),
        ("open", "PENDING")
    );
}

/// The answer to the first was lost.
pub async fn a_repeated_settlement_happens_once(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    let (token, taken) = take_one(table, &*store).await;
    assert_eq!(settle_one(&*store, token, &taken, Fate::Sent).await, Settled::default());
    let again = settle_one(&*store, token, &taken, Fate::Sent).await;
    if !table.words().leaves {
        assert_eq!(again, Settled::default(), "it is done");
    }
    assert_eq!(reads(table, 1).await, delivered(table));
    assert_eq!(table.left_in_ledger().await, 0);
}

/// In Postroom's own view: nothing of that is written into the row.
pub async fn what_a_relay_holds_is_shown_as_claimed(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 1).await;
    let (token, taken) = take_one(table, &*store).await;
    let record = shown(&*store, 1).await;
    assert_eq!((record.status.as_str(), record.locked_by.as_deref()), ("CLAIMED", Some("worker")));
    assert_eq!(reads(table, 1).await, "open");
    assert_eq!(settle_one(&*store, token, &taken, Fate::Released).await, Settled::default());
    assert_eq!(shown(&*store, 1).await.status, "PENDING");
}
