//! The steps that tests of layouts are made of.

use super::{LayoutHarness, Words};
use crate::contract::steps::{settle, take_batches, verdict};
use postroom_core::{Batch, Fate, Filter, Record, Settled, Store, Taken, Token};

/// The statement for row `n`.
pub(super) fn of(sql: &str, n: u32) -> String {
    sql.replace("{n}", &n.to_string())
}

/// A table that is migrated, and a store on it.
pub(super) async fn migrated(table: &impl LayoutHarness) -> std::sync::Arc<dyn Store> {
    table.migrate().await;
    table.store().await
}

/// Inserts row `n` as its producer does.
pub(super) async fn insert(table: &impl LayoutHarness, n: u32) {
    table.execute(&of(table.words().insert, n)).await.expect("the producer is not refused");
}

/// Inserts these rows with one statement.
pub(super) async fn insert_many(table: &impl LayoutHarness, from: u32, to: u32) {
    let sql = table.words().insert_many;
    let sql = sql.replace("{from}", &from.to_string()).replace("{to}", &to.to_string());
    table.execute(&sql).await.expect("the producer is not refused");
}

/// Changes row `n` by hand.
pub(super) async fn change(table: &impl LayoutHarness, set: &str, n: u32) {
    let Words { table: name, row, .. } = table.words();
    table.execute(&format!("UPDATE {name} SET {set} WHERE {}", of(row, n))).await.expect("changed");
}

/// What an expression says of row `n`; `None` when it is gone.
pub(super) async fn says(table: &impl LayoutHarness, expression: &str, n: u32) -> Option<String> {
    let Words { table: name, row, .. } = table.words();
    table.value(&format!("SELECT ({expression}) FROM {name} WHERE {}", of(row, n))).await
}

/// How its owner reads row `n`: `gone`, where it is not there.
pub(super) async fn reads(table: &impl LayoutHarness, n: u32) -> String {
    says(table, table.words().reads, n).await.unwrap_or_else(|| "gone".to_owned())
}

/// How its owner reads a row that was delivered.
pub(super) fn delivered(table: &impl LayoutHarness) -> &'static str {
    if table.words().leaves { "gone" } else { "sent" }
}

/// The number in a message's body.
pub(super) fn number(taken: &Taken) -> u32 {
    number_in(taken.message.payload.as_str())
}

fn number_in(payload: &str) -> u32 {
    let body: serde_json::Value = serde_json::from_str(payload).expect("a body is JSON");
    let n = body["n"].as_u64().expect("a body has its number");
    u32::try_from(n).expect("a small number")
}

/// Takes what is due in the table's lane.
pub(super) async fn take(table: &impl LayoutHarness, store: &dyn Store) -> Vec<Batch> {
    if table.has_triggers().is_err() {
        // Whoever looks at the outbox has it look at the table: a test waits for no poll.
        store.diagnose().await.expect("a look");
    }
    take_batches(store, "worker", &[table.words().lane], 1_000, |_| {}).await
}

/// The numbers of what is due, in order. What was taken stays taken.
pub(super) async fn due(table: &impl LayoutHarness, store: &dyn Store) -> Vec<u32> {
    let batches = take(table, store).await;
    let mut numbers: Vec<u32> =
        batches.iter().flat_map(|batch| &batch.messages).map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Takes the one message that is due.
pub(super) async fn take_one(table: &impl LayoutHarness, store: &dyn Store) -> (Token, Taken) {
    let mut batches = take(table, store).await;
    assert_eq!(batches.len(), 1, "one claim: {batches:?}");
    let batch = batches.remove(0);
    assert_eq!(batch.messages.len(), 1, "one message: {:?}", batch.messages);
    (batch.token, batch.messages.into_iter().next().expect("just counted"))
}

/// Takes the one message that is due, and gives it this fate.
pub(super) async fn take_and_settle(
    table: &impl LayoutHarness,
    store: &dyn Store,
    fate: Fate,
) -> Taken {
    let (token, taken) = take_one(table, store).await;
    assert_eq!(settle_one(store, token, &taken, fate).await, Settled::default());
    taken
}

pub(super) async fn settle_one(
    store: &dyn Store,
    token: Token,
    taken: &Taken,
    fate: Fate,
) -> Settled {
    settle(store, token, vec![verdict(taken, fate)], true).await
}

/// Row `n` as tools show it.
pub(super) async fn shown(store: &dyn Store, n: u32) -> Record {
    let all = store.list(&Filter { limit: 1_000, ..Filter::default() }).await.expect("a list");
    let is_it = |record: &Record| number_in(record.message.payload.as_str()) == n;
    all.into_iter().find(is_it).unwrap_or_else(|| panic!("row {n} is not shown"))
}
