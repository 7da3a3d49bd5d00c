//! The layout `kata`, whose `attempts` counts claims: those of relays that died with the message in hand too.

use super::postgres::Table;
use super::tables;
use crate::taking::{settlement, wish};
use postroom_core::{Batch, Fate, Quota, Rescued, Store};
use postroom_testkit::layout_contract::LayoutHarness;
use std::sync::Arc;
use std::time::Duration;

struct Kata {
    table: Table,
    store: Arc<dyn Store>,
}

impl Kata {
    async fn with_one_row() -> Self {
        let table = Table::start(tables::kata()).await;
        table.migrate().await;
        table.execute(&table.words().insert.replace("{n}", "1")).await.expect("inserted");
        let store = table.store().await;
        Self { table, store }
    }

    /// Claims the row: fresh, or rescued, with `rows` at once, which decides whether it is alone.
    async fn claim(&self, which: Option<Rescued>, rows: usize) -> Batch {
        let quotas = [Quota { integration: "noop".to_owned(), rows }];
        let wish = wish(&*self.store, &quotas).await;
        let taken = match which {
            None => self.store.take(&wish).await,
            Some(which) => self.store.take_rescued(&wish, which).await,
        };
        taken.expect("taken").remove(0)
    }

    /// Claims the row, and dies.
    async fn lose(&self, which: Option<Rescued>, rows: usize) {
        self.claim(which, rows).await;
        self.table.expire_claims().await;
        assert_eq!(self.store.rescue(10).await.expect("rescued"), 1);
    }

    async fn settle(&self, batch: &Batch, fate: Fate) {
        self.store.settle(&[settlement(batch, &fate)]).await.expect("settled");
    }

    async fn attempts(&self, of: &str) -> String {
        self.table
            .value(&format!("SELECT status || ' ' || attempts FROM {of}"))
            .await
            .expect("a row")
    }
}

const MANY: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_claim_that_was_lost_counts_with_the_outcome_that_follows() {
    let kata = Kata::with_one_row().await;
    kata.lose(None, MANY).await;
    kata.lose(Some(Rescued::Together), MANY).await;
    let third = kata.claim(Some(Rescued::Together), MANY).await;
    assert_eq!(kata.attempts("outbox").await, "PENDING 0", "it is written with the outcome");
    assert_eq!(kata.attempts("postroom_outbox.claimed").await, "SENDING 3");
    let failed =
        Fate::Failed { delay: Duration::ZERO, error: "503".to_owned(), took: Duration::ZERO };
    kata.settle(&third, failed).await;
    assert_eq!(kata.attempts("outbox").await, "PENDING 3");

    // The ledger counts from the last outcome on, and the row holds what came before.
    kata.lose(None, MANY).await;
    let fifth = kata.claim(Some(Rescued::Together), MANY).await;
    kata.settle(&fifth, Fate::Sent).await;
    assert_eq!(kata.attempts("outbox").await, "SENT 5");
}

/// The loss of a message that was alone is written at once: it counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_lost_alone_counts_once() {
    let kata = Kata::with_one_row().await;
    kata.lose(None, MANY).await;
    kata.lose(Some(Rescued::Alone), 1).await;
    assert_eq!(kata.attempts("outbox").await, "PENDING 1");
    kata.lose(Some(Rescued::Alone), 1).await;
    let fourth = kata.claim(Some(Rescued::Alone), 1).await;
    assert_eq!(kata.attempts("postroom_outbox.claimed").await, "SENDING 4");
    let dead = Fate::Dead {
        error: "410".to_owned(),
        tried: Some(postroom_core::Tried {
            outcome: postroom_core::AttemptOutcome::Reject,
            took: Duration::ZERO,
        }),
        announcement: None,
    };
    kata.settle(&fourth, dead).await;
    assert_eq!(kata.attempts("outbox").await, "FAILED 4");
}
