//! Owners whose constraints refuse what Postroom writes.

use super::postgres::Table;
use super::tables;
use crate::taking::{all, wish};
use postroom_core::{Quota, Rescued, Store};
use postroom_testkit::layout_contract::LayoutHarness;

/// Takes what is due, rescued or not; how many messages that are.
async fn take(store: &dyn Store, which: Option<Rescued>) -> usize {
    let one = [Quota { integration: "noop".to_owned(), rows: 1 }];
    let batches = match which {
        None => store.take(&wish(store, &all("noop")).await).await,
        Some(which) => store.take_rescued(&wish(store, &one).await, which).await,
    };
    batches.expect("taken").iter().map(|batch| batch.messages.len()).sum()
}

/// A relay that died with a message alone counts as an attempt of it, which the owner refuses to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescue_frees_every_message_though_the_owner_refuses_to_count_an_attempt() {
    let table = Table::start(tables::kata()).await;
    table.migrate().await;
    let store = table.store().await;
    table.execute("ALTER TABLE outbox ADD CHECK (attempts < 1)").await.expect("a constraint");
    table.execute(&table.words().insert.replace("{n}", "1")).await.expect("inserted");
    assert_eq!(take(&*store, None).await, 1);
    table.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescued"), 1);
    assert_eq!(take(&*store, Some(Rescued::Alone)).await, 1);
    table.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescued all the same"), 1);
    assert_eq!(take(&*store, Some(Rescued::Alone)).await, 1, "it is not lost");
    assert_eq!(table.value("SELECT attempts FROM outbox").await.as_deref(), Some("0"));
}
