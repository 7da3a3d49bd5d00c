//! What becomes of rows that producers insert, whatever their language.

use super::LayoutHarness;
use super::steps::{due, insert, insert_many, migrated, number, of, shown, take, take_and_settle};
use crate::eventually;
use crate::skip;
use postroom_core::Fate;
use std::collections::BTreeSet;
use std::time::Duration;

/// With its body, its type, and where it goes.
pub async fn what_a_producer_inserts_is_a_message(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert(table, 7).await;
    let taken = take_and_settle(table, &*store, Fate::Released).await;
    assert_eq!(number(&taken), 7);
    let message = &taken.message;
    assert_eq!(message.integration, table.words().lane);
    assert!(
        !message.event_type.is_empty()
            && !message.event_id.is_empty()
            && !message.stream_id.is_empty()
    );
    assert_eq!((taken.fault, message.attempts), (None, 0));
    assert_eq!(shown(&*store, 7).await.message.id, message.id);
}

/// In as many batches as it takes.
pub async fn many_rows_of_one_statement_are_each_taken_once(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    insert_many(table, 1, 300).await;
    let mut seen = Vec::new();
    loop {
        let batches = take(table, &*store).await;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            seen.extend(batch.messages.iter().map(number));
            let verdicts =
                batch.messages.iter().map(|one| crate::contract::steps::verdict(one, Fate::Sent));
            crate::contract::steps::settle(&*store, batch.token, verdicts.collect(), true).await;
        }
    }
    assert_eq!(seen.len(), 300);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 300);
    assert_eq!(table.left_in_ledger().await, 0);
}

/// Nor does it leave anything behind.
pub async fn what_was_rolled_back_is_not_delivered(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    let insert = of(table.words().insert, 1);
    table.execute(&format!("BEGIN; {insert}; ROLLBACK")).await.expect("rolled back");
    assert_eq!(due(table, &*store).await, [0; 0]);
    assert_eq!(table.left_in_ledger().await, 0);
}

/// A row whose transaction began first and ends last, when later ones were delivered already.
pub async fn what_commits_late_is_delivered(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    let late = table.execute_uncommitted(&of(table.words().insert, 1)).await;
    insert(table, 2).await;
    assert_eq!(due(table, &*store).await, [2]);
    assert_eq!(due(table, &*store).await, [0; 0]);
    late.await;
    let taken = async || Some(due(table, &*store).await).filter(|numbers| *numbers == [1]);
    eventually("the late row is taken", Duration::from_secs(10), taken).await;
}

/// It is not taken before.
pub async fn what_is_due_later_waits(table: &impl LayoutHarness) {
    let later = match table.words().insert_later {
        Ok(sql) => sql,
        Err(reason) => return skip(&format!("{}: what_is_due_later_waits", table.name()), reason),
    };
    let store = migrated(table).await;
    table.execute(&of(later, 1)).await.expect("inserted");
    insert(table, 2).await;
    assert_eq!(due(table, &*store).await, [2]);
    assert_eq!(shown(&*store, 1).await.status, "PENDING");
}

/// As a restore brings it.
pub async fn what_came_closed_is_not_delivered(table: &impl LayoutHarness) {
    let sent = match table.words().insert_sent {
        Ok(sql) => sql,
        Err(reason) => {
            return skip(&format!("{}: what_came_closed_is_not_delivered", table.name()), reason);
        }
    };
    let store = migrated(table).await;
    table.execute(&of(sent, 1)).await.expect("inserted");
    assert_eq!(due(table, &*store).await, [0; 0]);
    assert_eq!(shown(&*store, 1).await.status, "SENT");
}

/// Whatever enqueues through Postroom writes what the owner would have written, once per event.
pub async fn what_is_enqueued_is_a_row_of_the_owner(table: &impl LayoutHarness) {
    let store = migrated(table).await;
    const EVENT: &str = "0198c1f0-0000-7000-8000-000000000001";
    const STREAM: &str = "0198c1f0-0000-7000-8000-0000000000aa";
    let enqueued = table.enqueue(EVENT, STREAM, r#"{"n": 5}"#).await;
    let (id, is_new) = match enqueued {
        Ok(enqueued) => enqueued,
        Err(reason) => {
            return skip(
                &format!("{}: what_is_enqueued_is_a_row_of_the_owner", table.name()),
                reason,
            );
        }
    };
    assert!(is_new);
    let taken = take_and_settle(table, &*store, Fate::Released).await;
    assert_eq!((number(&taken), taken.message.id.to_string()), (5, id.clone()));
    assert_eq!(taken.message.integration, table.words().lane);
    if taken.message.event_id == EVENT {
        let again =
            table.enqueue(EVENT, STREAM, r#"{"n": 6}"#).await.expect("it was possible before");
        assert_eq!(again, (id, false), "the first one stays");
    }
    let rows = table.value(&format!("SELECT count(*) FROM {}", table.words().table)).await;
    assert_eq!(rows.as_deref(), Some("1"));
}
